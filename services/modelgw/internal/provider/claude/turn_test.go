package claude_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/claude"
)

func TestATurnWithoutThinking(t *testing.T) {
	t.Parallel()
	user, result := chat.User("q"), &modelv1.ChatMessage{Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{"c"}}
	calls := chat.Assistant("", chat.Call("c", "f", "{}"))
	thought := chat.Assistant("", chat.Call("c", "f", "{}"))
	thought.Content = chat.ListContent(chat.SealedPart("seal", new("why")))
	signed := chat.Assistant("", chat.Call("c", "f", "{}"))
	signed.Content = chat.ListContent(chat.ReasoningPart("why"))
	open := []*modelv1.ChatMessage{user, signed, result}
	assert.True(t, claude.Unthought(open, true), "open thinking is a text")
	signed.GetContent().GetList().GetParts()[0].GetReasoning().Signature = new("s")
	for name, test := range map[string]struct {
		messages []*modelv1.ChatMessage
		want     bool
	}{
		"a question":             {[]*modelv1.ChatMessage{user}, false},
		"the next question":      {[]*modelv1.ChatMessage{user, calls, result, chat.Assistant("a"), user}, false},
		"a result":               {[]*modelv1.ChatMessage{user, calls, result}, true},
		"a result and a text":    {[]*modelv1.ChatMessage{user, calls, result, user}, true},
		"a message to continue":  {[]*modelv1.ChatMessage{user, chat.Assistant("a")}, true},
		"a result after thought": {[]*modelv1.ChatMessage{user, thought, result, calls, result}, false},
		"signed thought":         {[]*modelv1.ChatMessage{user, signed, result}, false},
		"thought of before":      {[]*modelv1.ChatMessage{user, thought, result, user, calls, result}, true},
		"a result alone":         {[]*modelv1.ChatMessage{user, result}, false},
		"nothing":                {nil, false},
	} {
		assert.Equal(t, test.want, claude.Unthought(test.messages, true), name)
	}
	assert.True(t, claude.Unthought([]*modelv1.ChatMessage{user, thought, result}, false), "thinking that is not sent")
}
