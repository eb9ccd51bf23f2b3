package transcript_test

import (
	"encoding/json"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript/transcripttest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal/journaltest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// journalOf numbers events and puts a second between them.
func journalOf(events ...*agentv1.Event) iter.Seq2[*agentv1.Event, error] {
	return func(yield func(*agentv1.Event, error) bool) {
		for i, e := range events {
			e.Journal, e.Seq, e.Time = "projects/p/runs/r", int64(i+1), timestamppb.New(began.Add(time.Duration(i)*time.Second))
			if !yield(e, nil) {
				return
			}
		}
	}
}

func created(spec *agentv1.RunSpec) *agentv1.Event {
	bare, content := run.Split(spec)
	return &agentv1.Event{Kind: &agentv1.Event_RunCreated{RunCreated: &agentv1.RunCreated{
		Spec: bare, Content: content, Tools: []*toolv1.ToolDefinition{{Info: &toolv1.ToolInfo{Name: "bash", Description: "A shell.", ParametersJson: `{"type": "object"}`}}},
	}}}
}

// short is an event as `kind name` with its enclosing span.
func short(events []*transcript.Event) (all []string) {
	for _, e := range events {
		words := []string{e.Event}
		for _, word := range []string{e.Type, e.Name, e.Function} {
			if word != "" {
				words = append(words, word)
			}
		}
		if e.Pending {
			words = append(words, "pending")
		}
		all = append(all, strings.Join(words, " "))
	}
	return all
}

// aRun is the journal of a run of one step that calls a tool, and is scored.
func aRun() []*agentv1.Event {
	call := chat.Call("c1", "bash", `{"command": "ls"}`)
	answer := servicetest.Say("look", call)
	chat.FirstMessage(answer).Id = "m2"
	return []*agentv1.Event{
		created(&agentv1.RunSpec{
			Input: []*modelv1.ChatMessage{chat.User("go")}, Steps: []*agentv1.AgentRef{{Name: "generate"}}, Target: &agentv1.Target{Values: []string{"x"}},
			Store: map[string]string{"old": "1"}, Attribution: &effectv1.Attribution{Sample: "s1"},
		}),
		{Kind: &agentv1.Event_StepBegan{StepBegan: &agentv1.StepBegan{Name: "generate"}}},
		{Kind: &agentv1.Event_ModelIntent{ModelIntent: &agentv1.ModelIntent{Model: "mockllm/model", MessageCount: 1, Tools: []string{"bash"}}}},
		{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{
			Intent: 3, Content: &agentv1.ModelOutcomeContent{Output: answer}, Timing: &effectv1.Timing{Working: durationpb.New(2 * time.Second)},
		}}},
		agent.Add(chat.FirstMessage(answer)),
		{Kind: &agentv1.Event_ToolIntent{ToolIntent: &agentv1.ToolIntent{CallId: "c1", Function: "bash", Content: call}}},
		{Kind: &agentv1.Event_ToolOutcome{ToolOutcome: &agentv1.ToolOutcome{
			Intent: 6, CallId: "c1", Function: "bash", MessageId: "m3", Content: &agentv1.ToolOutcomeContent{Result: &toolv1.ToolResult{
				Content:        chat.TextContent("a b"),
				StoreChanges:   []*toolv1.StoreChange{{Key: "old", ValueJson: new("2")}, {Key: "new/one", ValueJson: new(`"x"`)}, {Key: "gone"}},
				SandboxActions: []*toolv1.SandboxAction{{Action: toolv1.SandboxActionType_SANDBOX_ACTION_TYPE_EXEC, Command: "ls", ExitCode: new(int32(0)), Output: "a b"}},
			}},
		}}},
		{Kind: &agentv1.Event_StepEnded{StepEnded: &agentv1.StepEnded{}}},
		{Kind: &agentv1.Event_RunStateChanged{RunStateChanged: &agentv1.RunStateChanged{State: agentv1.RunState_RUN_STATE_SCORING}}},
		{Kind: &agentv1.Event_ScoreIntent{ScoreIntent: &agentv1.ScoreIntent{Name: "includes", Scorer: &agentv1.ScorerRef{Name: "includes"}}}},
		{Kind: &agentv1.Event_ScoreOutcome{ScoreOutcome: &agentv1.ScoreOutcome{Intent: 10, Name: "includes", Content: &agentv1.ScoreContent{
			Score: &agentv1.Score{Value: &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Text{Text: "I"}}}, Target: &agentv1.Target{Values: []string{"x"}},
		}}}},
		{Kind: &agentv1.Event_RunFinished{RunFinished: &agentv1.RunFinished{State: agentv1.RunState_RUN_STATE_SUCCEEDED}}},
	}
}

func TestACallHasTheConfigurationThatWasSent(t *testing.T) {
	t.Parallel()
	journal := aRun()
	journal[2].GetModelIntent().Config = &modelv1.GenerateConfig{Temperature: new(0.5), ReasoningEffort: new("minimal"), TopP: new(0.25)}
	outcome := journal[3].GetModelOutcome()
	outcome.UnsentOptions = []string{"temperature"}
	outcome.ChangedOptions = []*modelv1.ChangedOption{{Option: "reasoning_effort", Asked: "minimal", Sent: "low"}}
	events, err := transcripttest.Of(journalOf(journal...))
	require.NoError(t, err)
	assert.JSONEq(t, `{"reasoning_effort":"low","top_p":0.25}`, string(events[5].Config))
}

func TestAThingIsOneEventWhereItBegan(t *testing.T) {
	t.Parallel()
	events, err := transcripttest.Of(journalOf(aRun()...))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"span_begin init init", "sample_init", "span_end", "span_begin solvers solvers", "span_begin solver generate",
		"model", "span_begin tool bash", "tool function bash", "sandbox", "store", "span_end", "state", "span_end", "span_end",
		"span_begin scorers scorers", "span_begin scorer includes", "score", "span_end", "span_end",
	}, short(events))

	init, solvers, step, model, toolSpan, tool, sandbox, store, state := events[1], events[3], events[4], events[5], events[6], events[7], events[8], events[9], events[11]
	assert.Contains(t, string(init.Sample), `"s1"`)
	assert.Contains(t, string(init.State), `"old":1`)
	assert.Equal(t, solvers.ID, step.ParentID)
	assert.Equal(t, step.ID, model.SpanID)
	assert.Equal(t, "/messages/1", state.Changes[0].Path)
	assert.InDelta(t, 2, *model.WorkingTime, 1e-9)
	assert.Equal(t, began.Add(3*time.Second), *model.Completed)
	assert.JSONEq(t, `"auto"`, string(model.ToolChoice))
	assert.Contains(t, string(model.Tools), "A shell.")
	require.Len(t, model.Messages, 1, "what it was asked, not what it said")
	assert.Equal(t, "go", model.Messages[0].GetContent().GetText())
	assert.Equal(t, step.ID, toolSpan.ParentID)
	assert.Equal(t, toolSpan.ID, tool.SpanID)
	assert.Equal(t, toolSpan.ID, sandbox.SpanID)
	assert.Equal(t, "c1", tool.ID)
	assert.Equal(t, "m3", tool.MessageID)
	assert.JSONEq(t, `"a b"`, string(tool.Result))
	assert.JSONEq(t, `{"command": "ls"}`, string(tool.Arguments))
	changes, err := json.Marshal(store.Changes)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"op":"replace","path":"/old","value":2},{"op":"add","path":"/new~1one","value":"x"},{"op":"remove","path":"/gone"}]`, string(changes))
	scored := events[16]
	assert.Equal(t, events[15].ID, scored.SpanID)
	assert.JSONEq(t, `"x"`, string(scored.Target))
	assert.Equal(t, "I", scored.Score.Value.Text())
	open, uuids := map[string]bool{}, map[string]bool{}
	for _, e := range events {
		assert.False(t, uuids[e.UUID], "%s is of one event alone", e.UUID)
		uuids[e.UUID] = true
		switch e.Event {
		case "span_begin":
			open[e.ID] = true
		case "span_end":
			assert.True(t, open[e.ID], "a span ends once, after it began")
			delete(open, e.ID)
		}
	}
	assert.Empty(t, open)
}

func TestWhatHasNotEndedIsPending(t *testing.T) {
	t.Parallel()
	all := aRun()
	for n := 1; n <= len(all); n++ {
		events, err := transcripttest.Of(journalOf(all[:n]...))
		require.NoError(t, err)
		pending := 0
		for _, e := range events {
			if e.Pending {
				pending++
				assert.Nil(t, e.Completed)
			}
		}
		isIntent := all[n-1].GetModelIntent() != nil || all[n-1].GetToolIntent() != nil || all[n-1].GetScoreIntent() != nil
		assert.Equal(t, isIntent, pending == 1, "after %d events", n)
	}
}

func TestHowToolCallsFail(t *testing.T) {
	t.Parallel()
	hit := func(bound agentv1.LimitType) *agentv1.Event {
		reached := &agentv1.LimitReached{Type: bound, Limit: 1}
		return &agentv1.Event{Kind: &agentv1.Event_LimitHit{LimitHit: &agentv1.LimitHit{Limit: reached, EndsRun: true}}}
	}
	cancelled := func() *agentv1.ToolOutcome {
		return &agentv1.ToolOutcome{Failure: &toolv1.ToolFailure{Reason: "EFFECT_CANCELLED", Message: "cut"}}
	}
	for name, c := range map[string]struct {
		outcome    *agentv1.ToolOutcome
		before     []*agentv1.Event // between the call and its outcome
		err        string
		failed     bool
		interrupts int
	}{
		"the model reads why": {
			outcome: &agentv1.ToolOutcome{
				ErrorType: toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT,
				Content:   &agentv1.ToolOutcomeContent{Result: &toolv1.ToolResult{Error: &toolv1.ToolCallError{Message: "late"}}},
			},
			err: `{"type": "timeout", "message": "late"}`,
		},
		"the run fails": {
			outcome: &agentv1.ToolOutcome{Failure: &toolv1.ToolFailure{Reason: "INTERNAL", Message: "broken"}}, failed: true,
		},
		"another call failed": {outcome: cancelled(), err: `{"type": "cancelled", "message": "cut"}`, failed: true},
		"the time was up":     {outcome: cancelled(), before: []*agentv1.Event{hit(agentv1.LimitType_LIMIT_TYPE_TIME)}},
		"an operator cut the turn": {
			outcome: &agentv1.ToolOutcome{
				Interrupted: true, ErrorType: toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED,
				Content: &agentv1.ToolOutcomeContent{Result: &toolv1.ToolResult{Error: &toolv1.ToolCallError{Message: "cut"}}},
			},
			err: `{"type": "cancelled", "message": "cut"}`, failed: true,
		},
		"an operator stopped the call": {
			outcome: &agentv1.ToolOutcome{
				Interrupted: true, ErrorType: toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT,
				Content: &agentv1.ToolOutcomeContent{Result: &toolv1.ToolResult{Error: &toolv1.ToolCallError{Message: "late"}}},
			},
			err: `{"type": "timeout", "message": "late"}`,
		},
		"its owner says that the time was up": {
			outcome: &agentv1.ToolOutcome{
				ErrorType: toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED,
				Content:   &agentv1.ToolOutcomeContent{Result: &toolv1.ToolResult{Error: &toolv1.ToolCallError{Message: "cut"}}},
			},
			before: []*agentv1.Event{hit(agentv1.LimitType_LIMIT_TYPE_TIME)},
		},
		"the working time was up": {
			outcome: cancelled(), before: []*agentv1.Event{hit(agentv1.LimitType_LIMIT_TYPE_WORKING)},
			err: `{"type": "cancelled", "message": "cut"}`, failed: true, interrupts: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.outcome.Intent = 2
			intent := &agentv1.Event{Kind: &agentv1.Event_ToolIntent{ToolIntent: &agentv1.ToolIntent{CallId: "c", Function: "bash"}}}
			outcome := &agentv1.Event{Kind: &agentv1.Event_ToolOutcome{ToolOutcome: c.outcome}}
			journal := append([]*agentv1.Event{created(&agentv1.RunSpec{}), intent}, c.before...)
			events, err := transcripttest.Of(journalOf(append(journal, outcome)...))
			require.NoError(t, err)
			interrupts := 0
			for _, e := range events {
				switch e.Event {
				case "tool":
					assert.Equal(t, c.failed, e.Failed)
					if c.err == "" {
						assert.Nil(t, e.Error, "%s", e.Error)
					} else {
						assert.JSONEq(t, c.err, string(e.Error))
					}
				case "interrupt":
					interrupts++
					assert.Equal(t, []string{"limit", "tool_call", "c"}, []string{e.Source, e.Interrupted, e.CallID})
				}
			}
			assert.Equal(t, c.interrupts, interrupts)
		})
	}
}

// TestNoKindIsTooMuch reads an event of every kind, with every field set, and none of what it refers to.
func TestNoKindIsTooMuch(t *testing.T) {
	t.Parallel()
	for _, e := range journaltest.Samples(10) {
		events, err := transcripttest.Of(journalOf(created(&agentv1.RunSpec{Steps: []*agentv1.AgentRef{{Name: "react"}}}), e))
		require.NoError(t, err)
		text, err := json.Marshal(events)
		require.NoError(t, err)
		assert.True(t, json.Valid(text))
	}
	_, err := transcripttest.Of(func(yield func(*agentv1.Event, error) bool) { yield(nil, assert.AnError) })
	require.ErrorIs(t, err, assert.AnError)
}

// A model call of an agent that another began shows that agent's tools, of which one may have the name of the run's.
func TestAChildsCallShowsItsTools(t *testing.T) {
	t.Parallel()
	began := run.NewEvent(&agentv1.AgentBegan{Name: "child", Content: &agentv1.AgentBeganContent{
		Tools: []*toolv1.ToolDefinition{{Info: &toolv1.ToolInfo{Name: "bash", Description: "Another.", ParametersJson: `{"type": "object"}`}}},
	}})
	began.Id = "2"
	of := run.NewEvent(&agentv1.ModelIntent{Model: "mockllm/model", Tools: []string{"bash"}})
	of.Span = "2"
	b := transcript.NewBuilder()
	for e, err := range journalOf(created(&agentv1.RunSpec{}), began, of, run.NewEvent(&agentv1.ModelIntent{Model: "mockllm/model", Tools: []string{"bash"}})) {
		require.NoError(t, err)
		require.NoError(t, b.Add(e))
	}
	var shown []string
	for _, e := range b.Events() {
		if e.Event == "model" {
			shown = append(shown, string(e.Tools))
		}
	}
	require.Len(t, shown, 2)
	assert.Contains(t, shown[0], "Another.")
	assert.Contains(t, shown[1], "A shell.")
}

// An interrupted model call names the source of the interrupt, even if an answer came late.
func TestInterruptedModelCalls(t *testing.T) {
	t.Parallel()
	intent := &agentv1.Event{Kind: &agentv1.Event_ModelIntent{ModelIntent: &agentv1.ModelIntent{Model: "mockllm/model"}}}
	cut := &agentv1.Event{Kind: &agentv1.Event_Interrupted{Interrupted: &agentv1.Interrupted{Source: agentv1.InterruptSource_INTERRUPT_SOURCE_USER_CANCEL, Interrupted: agentv1.InterruptedWork_INTERRUPTED_WORK_GENERATE, Intent: 2}}}
	outcome := &agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{Intent: 2, Interrupted: true}}}
	events, err := transcripttest.Of(journalOf(created(&agentv1.RunSpec{}), intent, cut, outcome))
	require.NoError(t, err)
	var errors, interrupts []string
	for _, e := range events {
		switch e.Event {
		case "model":
			errors = append(errors, string(e.Error))
		case "interrupt":
			interrupts = append(interrupts, e.Source+" "+e.Interrupted)
		}
	}
	assert.Equal(t, []string{`"Cancelled by operator"`}, errors)
	assert.Equal(t, []string{"user_cancel generate"}, interrupts)
}

// Inspect has an event for each attempt, those that failed in front of the answer.
func TestEachFailedAttemptIsAnEvent(t *testing.T) {
	t.Parallel()
	at := func(seconds int) *timestamppb.Timestamp {
		return timestamppb.New(began.Add(time.Duration(seconds) * time.Second))
	}
	attempts := []*modelv1.FailedAttempt{
		{Error: "busy", EndTime: at(3), Wait: durationpb.New(2 * time.Second)},
		{Error: "ill", Model: "mockllm/other", EndTime: at(6)},
		{Error: "held back"},
	}
	said := &modelv1.ModelCall{RequestJson: `{"q":1}`, ResponseJson: `{"body":"ill"}`, Error: true}
	answer := &agentv1.ModelOutcome{
		Intent: 3, FailedAttempts: attempts, Timing: &effectv1.Timing{Working: durationpb.New(2 * time.Second)}, UnsentOptions: []string{"seed"},
		Content: &agentv1.ModelOutcomeContent{Output: servicetest.Say("fine"), FailedCalls: []*modelv1.ModelCall{said, {}}},
	}
	refused := &agentv1.ModelOutcome{
		Intent: 3, FailedAttempts: attempts[:1], Error: &agentv1.RunError{Reason: "PROVIDER_REJECTED", Message: "no"}, Timing: &effectv1.Timing{Attempts: 9},
	}
	intent := func() *agentv1.Event {
		return run.NewEvent(&agentv1.ModelIntent{
			Turn: 1, Model: "mockllm/model", Role: "grader", MessageCount: 1, Tools: []string{"bash"},
			Config: &modelv1.GenerateConfig{Seed: new(int64(1)), TopK: new(int32(2))},
		})
	}
	models := func(outcome *agentv1.ModelOutcome) (models []*transcript.Event) {
		// What began within the call stays behind its event.
		events, err := transcripttest.Of(journalOf(anAgent(intent(), run.NewEvent(&agentv1.Info{}), run.NewEvent(outcome))...))
		require.NoError(t, err)
		uuids := map[string]bool{}
		for i, e := range events {
			assert.False(t, uuids[e.UUID], "%s is of one event alone", e.UUID)
			if uuids[e.UUID] = true; e.Event == "model" {
				models = append(models, e)
			}
			if i == len(events)-1 {
				assert.Equal(t, "info", e.Event)
			}
		}
		return models
	}

	all := models(answer)
	require.Len(t, all, 4)
	last := all[3]
	assert.Equal(t, 3, last.Retries)
	assert.NotNil(t, last.Output)
	assert.Nil(t, last.Error)
	for i, e := range all[:3] {
		assert.False(t, e.Pending)
		assert.Zero(t, e.Retries)
		assert.Nil(t, e.Output, "what it used is in the answer's usage")
		assert.Nil(t, e.WorkingTime, "it is in the answer's")
		assert.JSONEq(t, string(jsonwrite.Marshal(attempts[i].GetError())), string(e.Error))
		assert.Equal(t, last.Messages, e.Messages)
		assert.Equal(t, []any{last.SpanID, last.Role, last.Tools, last.ToolChoice}, []any{e.SpanID, e.Role, e.Tools, e.ToolChoice})
		assert.JSONEq(t, `{"top_k":2}`, string(e.Config), "as it was sent")
	}
	assert.Equal(t, []string{"mockllm/model", "mockllm/other", "mockllm/model"}, []string{all[0].Model, all[1].Model, all[2].Model})
	assert.Equal(t, []any{began.Add(2 * time.Second), began.Add(5 * time.Second), began.Add(6 * time.Second)}, []any{all[0].Timestamp, all[1].Timestamp, all[2].Timestamp})
	assert.Equal(t, at(3).AsTime(), *all[0].Completed)
	assert.Nil(t, all[2].Completed)
	assert.Nil(t, all[0].Call, "the latest alone have one")
	assert.JSONEq(t, `{"request":{"q":1},"response":{"body":"ill"},"error":true,"time":null}`, string(all[1].Call))
	assert.Nil(t, all[2].Call)
	assert.Equal(t, `Traceback (most recent call last):
  projects/p/runs/r, sample s1, epoch 2
  step 1, react
  turn 1, call of the model mockllm/model
  attempt 1
ERROR: busy
`, all[0].Traceback)

	all = models(refused)
	require.Len(t, all, 2)
	assert.Equal(t, 8, all[len(all)-1].Retries, "an error names the latest attempts alone")
	assert.JSONEq(t, `"busy"`, string(all[0].Error))
	assert.JSONEq(t, `"no"`, string(all[1].Error))
}
