package run_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// The stages that are planned are those that toolexec executes: a parallel tool that fails fast runs alone, and the
// later calls of it are skipped after a failure.
func TestACallThatFailsFastIsAStageOfItsOwn(t *testing.T) {
	t.Parallel()
	functions := []string{"read", "read", "write", "write", "read", "hand", "read"}
	message := &modelv1.ChatMessage{Id: "m", Role: modelv1.Role_ROLE_ASSISTANT, MetadataJson: `{"tool_calls_fail_fast": ["write"]}`}
	reviewed := &agentv1.ToolsReviewed{MessageId: "m", Content: &agentv1.ToolsReviewedContent{}}
	for i, function := range functions {
		id := string(rune('a' + i))
		message.ToolCalls = append(message.ToolCalls, chat.Call(id, function, `{}`))
		review := &toolv1.ToolReview{CallId: id, Parallel: true, Decision: toolv1.ReviewDecision_REVIEW_DECISION_RUN}
		if function == "hand" {
			review.Decision = toolv1.ReviewDecision_REVIEW_DECISION_CALLER
		}
		reviewed.Content.Reviews = append(reviewed.Content.Reviews, review)
	}
	s, err := run.Fold(name, nil, journalOf(created(&agentv1.RunSpec{}),
		&agentv1.Event{Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Role: message.GetRole(), Content: message}}},
		&agentv1.Event{Kind: &agentv1.Event_ToolsReviewed{ToolsReviewed: reviewed}},
	))
	require.NoError(t, err)
	var stages [][]string
	for stage := s.Calls.Next(); len(stage) > 0; stage = s.Calls.Next() {
		var of []string
		for _, c := range stage {
			of = append(of, c.Call.GetFunction())
			outcome := &agentv1.ToolOutcome{}
			if c.Call.GetFunction() == "write" {
				assert.Equal(t, len(stages) == 2, s.Calls.Skips(c), "the second call of a function that failed")
				outcome.ErrorType = toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN
			}
			c.Outcome = &agentv1.Event{Kind: &agentv1.Event_ToolOutcome{ToolOutcome: outcome}}
		}
		stages = append(stages, of)
	}
	assert.Equal(t, [][]string{{"read", "read"}, {"write"}, {"write"}, {"read"}, {"hand"}, {"read"}}, stages)
	assert.True(t, s.Calls.Done())
}
