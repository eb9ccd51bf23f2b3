package transcript_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript/transcripttest"
)

// anAgent is the beginning of a run whose only step is an agent's.
func anAgent(more ...*agentv1.Event) []*agentv1.Event {
	return append([]*agentv1.Event{
		created(&agentv1.RunSpec{Steps: []*agentv1.AgentRef{{Name: "react"}}, Attribution: &effectv1.Attribution{Sample: "s1", Epoch: 2}}),
		{Kind: &agentv1.Event_StepBegan{StepBegan: &agentv1.StepBegan{Name: "react"}}},
	}, more...)
}

func TestAnAgentWorksWithinASolver(t *testing.T) {
	t.Parallel()
	answer := chat.Assistant("done")
	events, err := transcripttest.Of(journalOf(anAgent(
		&agentv1.Event{Kind: &agentv1.Event_ModelIntent{ModelIntent: &agentv1.ModelIntent{Model: "mockllm/model"}}},
		&agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{Intent: 3}}},
		&agentv1.Event{Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Content: answer}}},
		&agentv1.Event{Kind: &agentv1.Event_StepEnded{StepEnded: &agentv1.StepEnded{}}},
	)...))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"span_begin init init", "sample_init", "span_end", "span_begin solvers solvers", "span_begin solver react", "span_begin agent react",
		"model", "span_end", "state", "span_end",
	}, short(events))
	solver, agent, model, state := events[4], events[5], events[6], events[8]
	assert.Equal(t, solver.ID, agent.ParentID)
	assert.Equal(t, agent.ID, model.SpanID)
	assert.Equal(t, solver.ID, state.SpanID, "what the step came to is the solver's")
}

func TestATracebackSaysWhereAnErrorArose(t *testing.T) {
	t.Parallel()
	refused := &agentv1.RunError{Reason: "PROVIDER_REJECTED", Message: "mockllm answered 400: no"}
	failing := anAgent(
		&agentv1.Event{Kind: &agentv1.Event_ModelIntent{ModelIntent: &agentv1.ModelIntent{Model: "mockllm/model", Turn: 1}}},
		&agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{
			Intent: 3, Error: refused, FailedAttempts: []*modelv1.FailedAttempt{{Error: "mockllm answered 503", Wait: durationpb.New(2 * time.Second)}},
		}}},
		&agentv1.Event{Kind: &agentv1.Event_ErrorRaised{ErrorRaised: &agentv1.ErrorRaised{Error: refused}}},
		&agentv1.Event{Kind: &agentv1.Event_RunFinished{RunFinished: &agentv1.RunFinished{Error: refused}}},
	)
	const want = `Traceback (most recent call last):
  projects/p/runs/r, sample s1, epoch 2
  step 1, react
  turn 1, call of the model mockllm/model
    after an attempt that failed: mockllm answered 503 (waited 2s)
PROVIDER_REJECTED: mockllm answered 400: no
`
	b := transcript.NewBuilder()
	for e, err := range journalOf(failing...) {
		require.NoError(t, err)
		require.NoError(t, b.Add(e))
	}
	assert.Equal(t, want, b.Traceback(refused), "of the run, after its end")
	for _, e := range b.Events() {
		switch e.Event {
		case "model":
			if !strings.Contains(e.UUID, ".attempt.") {
				assert.Equal(t, want, e.Traceback)
			}
		case "error":
			var raised struct{ Traceback string }
			require.NoError(t, json.Unmarshal(e.Error, &raised))
			assert.Equal(t, want, raised.Traceback)
		}
	}
	assert.Equal(t, "Traceback (most recent call last):\n  projects/p/runs/r, sample s1, epoch 2\nOPERATOR: stopped\n",
		b.Traceback(&agentv1.RunError{Reason: "OPERATOR", Message: "stopped"}), "no effect failed with this")

	for name, test := range map[string]struct {
		intent, outcome *agentv1.Event
		want            string
	}{
		"a tool": {
			&agentv1.Event{Kind: &agentv1.Event_ToolIntent{ToolIntent: &agentv1.ToolIntent{CallId: "c", Function: "bash"}}},
			&agentv1.Event{Kind: &agentv1.Event_ToolOutcome{ToolOutcome: &agentv1.ToolOutcome{Intent: 3, CallId: "c", Failure: &toolv1.ToolFailure{Reason: refused.GetReason()}}}},
			"  call of the tool bash\n",
		},
		"a sandbox": {
			&agentv1.Event{Kind: &agentv1.Event_SandboxIntent{SandboxIntent: &agentv1.SandboxIntent{Environment: "default"}}},
			&agentv1.Event{Kind: &agentv1.Event_SandboxOutcome{SandboxOutcome: &agentv1.SandboxOutcome{Intent: 3, Error: refused}}},
			"  making of the sandbox default\n",
		},
		"a scorer": {
			&agentv1.Event{Kind: &agentv1.Event_ScoreIntent{ScoreIntent: &agentv1.ScoreIntent{Name: "match"}}},
			&agentv1.Event{Kind: &agentv1.Event_ScoreOutcome{ScoreOutcome: &agentv1.ScoreOutcome{Intent: 3, Error: refused}}},
			"  scorer match\n",
		},
		"a command": {
			&agentv1.Event{Kind: &agentv1.Event_ExecIntent{ExecIntent: &agentv1.ExecIntent{Environment: "default", Purpose: "score"}}},
			&agentv1.Event{Kind: &agentv1.Event_ExecOutcome{ExecOutcome: &agentv1.ExecOutcome{Intent: 3, Error: refused}}},
			"  command for score in the sandbox default\n",
		},
		"a worker": {
			&agentv1.Event{Kind: &agentv1.Event_WorkerIntent{WorkerIntent: &agentv1.WorkerIntent{Purpose: "score"}}},
			&agentv1.Event{Kind: &agentv1.Event_WorkerOutcome{WorkerOutcome: &agentv1.WorkerOutcome{Intent: 3, Error: refused}}},
			"  call of a worker: score\n",
		},
	} {
		b := transcript.NewBuilder()
		for e, err := range journalOf(anAgent(test.intent, test.outcome)...) {
			require.NoError(t, err)
			require.NoError(t, b.Add(e))
		}
		assert.Contains(t, b.Traceback(refused), "  step 1, react\n"+test.want+"PROVIDER_REJECTED", name)
	}
}

func TestACallIsShownAsItsToolShowsIt(t *testing.T) {
	t.Parallel()
	reviews := &agentv1.Event{Kind: &agentv1.Event_ToolsReviewed{ToolsReviewed: &agentv1.ToolsReviewed{Content: &agentv1.ToolsReviewedContent{Reviews: []*toolv1.ToolReview{
		{CallId: "c1", View: &toolv1.ToolCallView{Call: &toolv1.ToolCallContent{Title: "bash", Format: toolv1.ViewFormat_VIEW_FORMAT_MARKDOWN, Content: "```bash\nls\n```"}}}, {CallId: "c2"},
	}}}}}
	intent := func(id string) *agentv1.Event {
		return &agentv1.Event{Kind: &agentv1.Event_ToolIntent{ToolIntent: &agentv1.ToolIntent{CallId: id, Function: "bash"}}}
	}
	events, err := transcripttest.Of(journalOf(anAgent(reviews, intent("c1"), intent("c2"))...))
	require.NoError(t, err)
	views := map[string]string{}
	for _, e := range events {
		if e.Event == "tool" {
			views[e.ID] = string(e.View)
		}
	}
	assert.JSONEq(t, `{"title":"bash","format":"markdown","content":"`+"```bash\\nls\\n```"+`"}`, views["c1"])
	assert.Empty(t, views["c2"])
}
