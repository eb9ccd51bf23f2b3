package dialect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

func TestNeighbouringEntriesAreOneMessage(t *testing.T) {
	t.Parallel()
	var turns dialect.Turns
	turns.Hear(chat.TextPart("a"))
	turns.Hear(chat.TextPart("b"))
	turns.End()
	turns.Hear(chat.TextPart("c"))
	turns.Say(chat.TextPart("d"))
	turns.Call(chat.Call("1", "f", "{}"))
	turns.Result("1", chat.TextContent("e"))
	var all []string
	for _, m := range turns.Messages() {
		all = append(all, chat.RoleName(m.GetRole())+" "+m.GetFunction()+" "+chat.Text(m))
	}
	assert.Equal(t, []string{"user  a\nb", "user  c", "assistant  d", "tool f e"}, all)
}

func TestAnOutcomeAndAnAnswerAreMessagesOfTheirOwn(t *testing.T) {
	t.Parallel()
	var turns dialect.Turns
	turns.Answer(nil, []*toolv1.ToolCall{chat.Call("1", "f", "{}")})
	turns.Outcome("1", "f", nil, &toolv1.ToolCallError{Message: "bad"})
	messages := turns.Messages()
	require.Len(t, messages, 2)
	assert.Equal(t, modelv1.MessageSource_MESSAGE_SOURCE_GENERATE, messages[0].GetSource())
	assert.Len(t, messages[0].GetToolCalls(), 1)
	assert.Nil(t, messages[1].GetContent().GetList(), "no part is one empty text")
	assert.Equal(t, []string{"f", "1", "bad"}, []string{messages[1].GetFunction(), chat.CallID(messages[1]), messages[1].GetError().GetMessage()})
}

func TestOneTextIsTheContentOfAMessageAsSuch(t *testing.T) {
	t.Parallel()
	assert.Nil(t, dialect.NewMessage(modelv1.Role_ROLE_USER, chat.Parts(chat.TextContent("a"))).GetContent().GetList())
	assert.Empty(t, dialect.NewMessage(modelv1.Role_ROLE_ASSISTANT, nil).GetContent().GetList().GetParts())
}
