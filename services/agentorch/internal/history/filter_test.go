package history_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/history"
)

func TestACallIsRenderedAsOneLineOfLessThan80Characters(t *testing.T) {
	t.Parallel()
	fits, long := strings.Repeat("é", 70), strings.Repeat("é", 71)
	for arguments, want := range map[string]string{
		`{}`:                            "add()",
		`{"x": 1, "y": "it's"}`:         "add(x=1, y='it's')",
		`{"t": "a\n\tb \\ \"c\""}`:      "add(t='a\n\tb \\ \"c\"')",
		`{"t": "` + fits + `"}`:         "add(t='" + fits + "')",
		`{"t": "` + long + `"}`:         "add(\n    t='" + long + "'\n)",
		`{"a": 1, "t": "` + long + `"}`: "add(\n    a=1,\n    t='" + long + "'\n)",
		`{"t": "a\n\nb` + long + `"}`:   "add(\n    t='a\n\n    b" + long + "'\n)",
	} {
		assert.Equal(t, want, history.Render(chat.Call("c1", "add", arguments)), arguments)
	}
}

func TestAMessageWithManyCallsIsTrimmed(t *testing.T) {
	t.Parallel()
	const calls = 60_000
	answer := chat.Assistant("")
	messages := []*modelv1.ChatMessage{chat.User("q"), answer}
	for i := range calls {
		id := fmt.Sprintf("call_%08d", i)
		answer.ToolCalls = append(answer.ToolCalls, &toolv1.ToolCall{Id: id})
		if i > 0 {
			messages = append(messages, chat.ToolMessage(&toolv1.ToolResult{CallId: id, Content: chat.TextContent("")}))
		}
	}
	begun := time.Now()
	trimmed, err := history.Trim(messages, 1)
	require.NoError(t, err)
	assert.Len(t, trimmed, len(messages))
	assert.Len(t, trimmed[1].GetToolCalls(), calls-1)
	assert.Less(t, time.Since(begun), waittest.Bound)
}
