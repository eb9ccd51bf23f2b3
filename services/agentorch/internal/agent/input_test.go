package agent_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

// sent are messages by their ids: u a user's, s a system's, t1 the result of call 1, a12 an answer with the calls 1 and
// 2. What follows a slash makes ids unique.
func sent(ids string) (all []*modelv1.ChatMessage) {
	roles := map[byte]modelv1.Role{
		'u': modelv1.Role_ROLE_USER, 's': modelv1.Role_ROLE_SYSTEM, 'a': modelv1.Role_ROLE_ASSISTANT, 't': modelv1.Role_ROLE_TOOL,
	}
	for id := range strings.FieldsSeq(ids) {
		m := &modelv1.ChatMessage{Id: id, Role: roles[id[0]]}
		calls, _, _ := strings.Cut(id[1:], "/")
		for call := range strings.SplitSeq(calls, "") {
			if m.GetRole() == modelv1.Role_ROLE_TOOL {
				m.ToolCallIds = []string{call}
			} else {
				m.ToolCalls = append(m.ToolCalls, &toolv1.ToolCall{Id: call})
			}
		}
		all = append(all, m)
	}
	return all
}

// TestARemovalLeavesNoCallAlone removes messages from what a model is sent that a compaction has changed in part.
func TestARemovalLeavesNoCallAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ input, removed, want string }{
		"nothing of it is there":       {"u s a1 t1 a2 t2", "a7 t7", "u s a1 t1 a2 t2"},
		"the answer and its results":   {"u a1 t1 a2 t2", "a1 t1", "u a2 t2"},
		"results that are others now":  {"u a1 t1/new a2 t2", "a1 t1", "u a2 t2"},
		"an answer that is another":    {"u a1/new t1 u/2 a2 t2", "a1 t1", "u u/2 a2 t2"},
		"an answer, and one result":    {"u a12/new t1/new t2 a3 t3", "a12 t1 t2", "u a3 t3"},
		"results that stand otherwise": {"u a12 t2 t1 a3 t3 u/2", "u/2", "u a12 t2 t1 a3 t3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, own := agent.Input(sent(c.input), nil, true, agent.Edit("trim", nil, strings.Fields(c.removed)))
			assert.True(t, own)
			var ids []string
			for _, m := range got {
				ids = append(ids, m.GetId())
			}
			assert.Equal(t, strings.Fields(c.want), ids)
		})
	}
}
