package dialect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
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

func TestOneTextIsTheContentOfAMessageAsSuch(t *testing.T) {
	t.Parallel()
	assert.Nil(t, dialect.NewMessage(modelv1.Role_ROLE_USER, chat.Parts(chat.TextContent("a"))).GetContent().GetList())
	assert.Empty(t, dialect.NewMessage(modelv1.Role_ROLE_ASSISTANT, nil).GetContent().GetList().GetParts())
}
