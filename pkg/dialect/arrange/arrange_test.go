package arrange_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect/arrange"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

func said(messages []*modelv1.ChatMessage) (all []string) {
	for _, m := range messages {
		all = append(all, chat.RoleName(m.GetRole())+" "+chat.Text(m))
	}
	return all
}

func TestSystemMessagesStandWhereTheModelTakesThem(t *testing.T) {
	t.Parallel()
	result := chat.ToolMessage(&toolv1.ToolResult{CallId: "c", Content: chat.TextContent("r")})
	conversation := []*modelv1.ChatMessage{
		chat.System("0"), chat.User("u"), chat.System("1"), chat.System("2"), chat.Assistant("a"), chat.System("3"), chat.User("v"),
		chat.Assistant("", chat.Call("c", "f", "{}")), result, chat.System("4"),
	}
	for inline, want := range map[bool][]string{
		true:  {"system 0", "system 3", "user u", "system 1\n\n2", "assistant a", "user v", "assistant ", "tool r", "system 4"},
		false: {"system 0", "system 4", "user u", "user <system-reminder>\n1\n</system-reminder>", "user <system-reminder>\n2\n</system-reminder>", "assistant a", "user <system-reminder>\n3\n</system-reminder>", "user v", "assistant ", "tool r"},
	} {
		placed, moved := arrange.System(conversation, inline)
		assert.Equal(t, want, said(placed), "inline: %v", inline)
		assert.Equal(t, 1, moved)
	}
}

func TestAResultWithoutItsCallIsATextOfTheUser(t *testing.T) {
	t.Parallel()
	of := func(id string) *modelv1.ChatMessage {
		return chat.ToolMessage(&toolv1.ToolResult{CallId: id, Function: "f", Content: chat.TextContent("r")})
	}
	failed := of("x")
	failed.Error = &toolv1.ToolCallError{Message: "no"}
	assert.Equal(t, []string{"user [Tool result for f (error: no)]\nr", "assistant ", "tool r", "user [Tool result for f]\nr"},
		said(arrange.WithoutOrphans([]*modelv1.ChatMessage{failed, chat.Assistant("", chat.Call("c", "f", "{}")), of("c"), of("d")})))
}
