package decide_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/agenttest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/decide"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/grader"
)

// delegates is an agent that begins another for each task, all with the same bounds.
func delegates(limits *agentv1.RunLimits, tasks ...string) agent.Definition {
	var starts []agent.Start
	for _, task := range tasks {
		start := agenttest.Task("generate", task)
		start.Limits = limits
		starts = append(starts, start)
	}
	return agenttest.Delegates(starts...)
}

func conversation(f *run.Frame) string {
	var all []string
	for _, m := range f.Messages() {
		all = append(all, chat.Text(m))
	}
	return strings.Join(all, "|")
}

func assistant(text string) *modelv1.ChatMessage {
	return &modelv1.ChatMessage{Content: chat.TextContent(text)}
}

// modelCall returns the open model call of the agent with a task.
func (l *lab) modelCall(task string) *run.Intent {
	l.t.Helper()
	for _, i := range l.live.Open {
		if i.Event.GetModelIntent() != nil && i.Frame.Name() == task {
			return i
		}
	}
	require.FailNow(l.t, "no open model call", "of the agent of %q", task)
	return nil
}

// The answer of a child agent is an outcome of its parent, which continues with it.
func TestAChildsAnswerIsItsParentsOutcome(t *testing.T) {
	t.Parallel()
	l := newLab(t, delegates(nil, "one"))
	d := l.step(nothing, nil)
	assert.Equal(t, []string{"run_state_changed", "step_began", "agent_began", "model_intent"}, kinds(d))
	child := l.live.Frames()[1]
	assert.Equal(t, "4", child.Span, "its span is the id of the event that began it")
	assert.Equal(t, "one", conversation(child))
	assert.Empty(t, l.step(nothing, nil).Entries, "it waits for its child, which waits for its effect")

	d = l.step(answers(said(l.modelCall("one"), assistant("first"))), nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, d.Finished.GetState())
	assert.Equal(t, "Start.|first", conversation(l.live.Frame), "the child's own conversation is its own")
	assert.Len(t, l.live.Frames(), 1)
	assert.Equal(t, 1, l.live.Turns)
}

// Two children work concurrently. Their parent is asked at the end of each, while the other continues.
func TestChildrenWorkSideBySide(t *testing.T) {
	t.Parallel()
	l := newLab(t, delegates(nil, "one", "two"))
	l.step(nothing, nil)
	assert.Len(t, l.live.Frames(), 3)
	d := l.step(answers(said(l.modelCall("two"), assistant("second"))), nil)
	assert.Equal(t, []string{"model_outcome", "message_added", "agent_ended", "message_added"}, kinds(d))
	assert.Equal(t, "Start.|second", conversation(l.live.Frame), "it heard of one while the other works")
	assert.Len(t, l.live.Frames(), 2)
	d = l.step(answers(said(l.modelCall("one"), assistant("first"))), nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, d.Finished.GetState())
	assert.Equal(t, "Start.|second|first", conversation(l.live.Frame))
}

// A limit of a child ends the child and not the run. A limit of time stops the child's open effects.
func TestAChildHasBoundsOfItsOwn(t *testing.T) {
	t.Parallel()
	for bound, limits := range map[string]*agentv1.RunLimits{"message": {Messages: new(int32(1))}, "time": {Time: durationpb.New(2 * time.Second)}} {
		l := newLab(t, delegates(limits, "one"))
		d := l.step(nothing, nil)
		if bound == "time" {
			assert.Equal(t, began.Add(3*time.Second), decide.Wake(l.live))
			call := l.modelCall("one")
			l.step(nothing, nil)
			assert.False(t, l.live.Cuts(call))
			assert.Equal(t, []string{"limit_hit"}, kinds(l.step(nothing, nil)))
			assert.True(t, l.live.Cuts(call))
			d = l.step(answers(said(call, assistant("too late"))), nil)
		}
		assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, d.Finished.GetState(), bound)
		assert.Equal(t, "Start.|limit "+bound, conversation(l.live.Frame))
		assert.Nil(t, l.live.Limit)
	}
}

// A run that is cancelled ends its children first: each has its outcome.
func TestACancelEndsTheChildren(t *testing.T) {
	t.Parallel()
	l := newLab(t, delegates(nil, "one", "two"))
	l.step(nothing, nil)
	cancel := func() decide.Facts {
		return decide.Facts{Commands: []inbox.Command{{ID: "cancel", Principal: "user:ada", Request: &agentv1.CancelRunRequest{}}}}
	}
	assert.Equal(t, []string{"command_received"}, kinds(l.step(cancel, nil)))
	l.step(answers(said(l.modelCall("one"), assistant("late"))), nil)
	assert.Len(t, l.live.Frames(), 2)
	d := l.step(answers(said(l.modelCall("two"), assistant("late"))), nil)
	assert.Equal(t, []string{"model_outcome", "agent_ended", "cancel_acknowledged", "run_finished"}, kinds(d))
	assert.True(t, d.Entries[1].Event.GetAgentEnded().GetInterrupted())
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, d.Finished.GetState())
}

// What one effect waits for keeps nothing else from going on, also after a restart. The run waits when all of it does.
func TestAWaitIsOfOneEffect(t *testing.T) {
	t.Parallel()
	l := newLab(t, delegates(nil, "one", "two"))
	l.step(nothing, nil)
	full := func(task string, seconds int) decide.Answer {
		return decide.Answer{
			Key: l.live.Key(l.modelCall(task).Seq()), Wait: &agentv1.RunWait{Reason: waits.Capacity, RetryTime: timestamppb.New(began.Add(time.Duration(seconds) * time.Second))},
		}
	}
	l.step(answers(full("one", 5)), nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_RUNNING, l.live.Phase, "the other goes on")
	assert.NotNil(t, l.modelCall("one").Wait)
	assert.Nil(t, l.modelCall("two").Wait)
	assert.Equal(t, began.Add(5*time.Second), decide.Wake(l.live))

	l.step(answers(full("two", 9)), nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_WAITING, l.live.Phase)
	assert.Equal(t, began.Add(5*time.Second), l.live.Wait.GetRetryTime().AsTime(), "lists show the oldest")
	assert.Empty(t, l.step(nothing, nil).Entries)
	assert.Equal(t, []string{"wait_changed"}, kinds(l.step(nothing, nil)))
	assert.Equal(t, agentv1.RunState_RUN_STATE_RUNNING, l.live.Phase)
	assert.Nil(t, l.modelCall("one").Wait, "it is asked for again, under the same key")
	assert.NotNil(t, l.modelCall("two").Wait)

	lost := said(l.modelCall("one"), assistant(""))
	lost.Outcomes[0].GetModelOutcome().Error = &agentv1.RunError{Reason: "EFFECT_INDETERMINATE"}
	lost.Key, lost.Wait = l.live.Key(l.modelCall("one").Seq()), waits.ForDecision("a model call")
	child := l.modelCall("one").Frame
	l.step(answers(lost), nil)
	assert.NotNil(t, child.Wait, "a lost call is over: its agent waits, and asks for another")
	assert.Equal(t, agentv1.RunState_RUN_STATE_WAITING, l.live.Phase)
}

// A run waits for several things at once, each of which wakes it, and shows them all.
func TestARunKnowsAllThatItWaitsFor(t *testing.T) {
	t.Parallel()
	l := newLab(t, delegates(nil, "one", "two"))
	l.step(nothing, nil)
	lacks := func(task, worker string) decide.Answer {
		return decide.Answer{Key: l.live.Key(l.modelCall(task).Seq()), Wait: &agentv1.RunWait{
			Reason: waits.Worker, Subject: worker, RetryTime: timestamppb.New(began.Add(time.Hour)),
		}}
	}
	l.step(answers(lacks("one", "tool x"), lacks("two", "tool y")), nil)
	assert.Equal(t, []string{"tool x", "tool y"}, l.live.Subjects())
	shown := l.live.View(false)
	assert.Len(t, shown.GetWaits(), 2)
	assert.Equal(t, "tool x", shown.GetWait().GetSubject())
	assert.Equal(t, l.modelCall("two").Frame.Span, shown.GetWaits()[1].GetSpan())

	l.step(func() decide.Facts { return decide.Facts{Arrived: []string{"tool y"}} }, nil)
	assert.NotNil(t, l.modelCall("one").Wait)
	assert.Nil(t, l.modelCall("two").Wait, "it is asked for again")
	assert.Equal(t, []string{"tool x"}, l.live.Subjects())
}

// A message wakes only the agent that waits for it. A message for an inactive agent has no effect.
func TestAMessageIsForOneAgent(t *testing.T) {
	t.Parallel()
	l := newLab(t, agenttest.Delegates(agenttest.Task("listens", "one"), agenttest.Task("listens", "two")), agenttest.Listens())
	l.step(nothing, nil)
	require.Equal(t, agentv1.RunState_RUN_STATE_WAITING, l.live.Phase)
	second := l.live.Frames()[2]
	post := func(id, span string) func() decide.Facts {
		return func() decide.Facts {
			message := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: chat.TextContent("go")}
			request := &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{message}, Span: span}
			return decide.Facts{Commands: []inbox.Command{{ID: id, Principal: "user:ada", Request: request}}}
		}
	}
	assert.Equal(t, []string{"command_received", "wait_changed", "message_added", "model_intent"}, kinds(l.step(post("m1", second.Span), nil)))
	assert.Equal(t, "two|go", conversation(second))
	assert.NotNil(t, l.live.Frames()[1].Wait, "the other waits on")

	l.step(answers(said(l.modelCall("two"), assistant("done"))), nil)
	d := l.step(post("m2", second.Span), nil)
	require.Equal(t, []string{"command_received"}, kinds(d))
	assert.True(t, d.Entries[0].Event.GetCommandReceived().GetOutdated(), "the agent has ended")
	assert.Empty(t, l.live.Posted, "and nobody else hears it")
	assert.Equal(t, []string{"m2"}, d.Took)
}

// An agent whose calls toolexec does not review holds up none of the others.
func TestAReviewHoldsUpItsAgentAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t, delegates(nil, "one", "two"))
	l.step(nothing, nil)
	calls := func(id string) *modelv1.ChatMessage {
		return &modelv1.ChatMessage{Content: chat.TextContent(""), ToolCalls: []*toolv1.ToolCall{chat.Call(id, "weather", `{}`)}}
	}
	away := map[string]bool{"c1": true}
	review := func(c *toolv1.ToolCall) *toolv1.ToolReview {
		if away[c.GetId()] {
			return nil
		}
		return &toolv1.ToolReview{CallId: c.GetId(), Decision: toolv1.ReviewDecision_REVIEW_DECISION_RUN}
	}
	d := l.step(answers(said(l.modelCall("one"), calls("c1")), said(l.modelCall("two"), calls("c2"))), review)
	assert.Equal(t, []string{"model_outcome", "model_outcome", "message_added", "tools_reviewed", "tool_intent"}, kinds(d))
	assert.Equal(t, "two", l.live.Open[len(l.live.Open)-1].Frame.Name())
	away = nil
	assert.Equal(t, []string{"message_added", "tools_reviewed", "tool_intent"}, kinds(l.step(nothing, review)))
}

// A child's tools are pinned when it begins, if they differ from the run's tools of the same name. An unknown tool
// cannot be offered to a model, so the run fails.
func TestAChildsToolsArePinned(t *testing.T) {
	t.Parallel()
	definition := func(name, description string) *toolv1.ToolDefinition {
		return &toolv1.ToolDefinition{Info: &toolv1.ToolInfo{Name: name, Description: description}}
	}
	served := definition("served", "by a worker")
	served.Worker = "served"
	start := agenttest.Task("generate", "one")
	start.Agent.Tools = []*toolv1.ToolRef{{Name: "same"}, {Name: "other"}, {Name: "served"}, {Name: "given", Definition: definition("given", "given")}}
	start.Tools = []*toolv1.ToolDefinition{definition("same", "of the run"), definition("other", "of the child"), served}
	l := newLab(t, agenttest.Delegates(start))
	l.events[0].GetRunCreated().Tools = []*toolv1.ToolDefinition{definition("same", "of the run"), definition("other", "of the run")}
	l.live = l.fold()
	d := l.step(nothing, nil)
	content := d.Entries[2].Event.GetAgentBegan().GetContent()
	var pinned []string
	for _, d := range content.GetTools() {
		pinned = append(pinned, d.GetInfo().GetName()+" "+d.GetInfo().GetDescription())
	}
	assert.Equal(t, []string{"other of the child", "served by a worker", "given given"}, pinned)
	assert.NotNil(t, content.GetAgent().GetTools()[2].GetDefinition(), "its calls can wait for the worker")
	assert.Equal(t, []string{"same", "other", "served", "given"}, d.Entries[3].Event.GetModelIntent().GetTools())
	assert.Equal(t, "of the run", l.live.Tool("other").GetInfo().GetDescription())
	assert.Equal(t, "of the child", l.live.Frames()[1].Tool("other").GetInfo().GetDescription())

	start.Tools = nil
	l = newLab(t, agenttest.Delegates(start))
	d = l.step(nothing, nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, d.Finished.GetState())
	assert.Contains(t, d.Finished.GetError().GetMessage(), "with the tool same, which is not known")
}

// judging is an agent that has the run scored, and is done.
type judging struct {
	agent.NoTools
	agent.Track
}

func (m *judging) Next(agent.View) (agent.Action, error) {
	if m.At == agent.Scored {
		return agent.Action{Then: agent.Done{}}, nil
	}
	return agent.Action{Then: agent.Score{}}, nil
}

// grading is a scorer whose verdict is what the run's model says.
type grading struct{}

func (grading) Next(_ score.Input, results []score.Result) (score.Step, error) {
	if len(results) == 0 {
		return score.Step{Effect: grader.Question{Messages: []*modelv1.ChatMessage{agent.Says(modelv1.Role_ROLE_USER, "Grade it.")}}}, nil
	}
	outcome, _ := results[0].(*agentv1.ModelOutcome)
	return score.Step{Score: &score.Score{Value: score.Text(chat.Completion(outcome.GetContent().GetOutput()))}}, nil
}

// A child that its bound ends while a scorer works for it drops the round: what the scorer would have said is for no
// agent, and the run is scored as if it had not begun.
func TestAChildThatEndsDropsItsRoundOfScoring(t *testing.T) {
	t.Parallel()
	child := agenttest.Task("judges", "one")
	child.Limits = &agentv1.RunLimits{Time: durationpb.New(2 * time.Second)}
	judges := agent.Definition{
		Name: "judges", Parameters: `{"type": "object"}`, Resolve: func(*agentv1.AgentRef) error { return nil },
		New: func(*agentv1.AgentRef) (agent.Machine, error) { return &judging{}, nil },
	}
	l := newLab(t, agenttest.Delegates(child), judges)
	l.scorers = score.NewRegistry(score.Definition{Name: "grades", New: func(json.RawMessage) (score.Scorer, error) { return grading{}, nil }})
	l.events[0].GetRunCreated().GetSpec().Scorers = []*agentv1.ScorerRef{{Name: "grades"}}
	l.live = l.fold()

	d := l.step(nothing, nil)
	assert.Equal(t, []string{"run_state_changed", "step_began", "agent_began", "score_intent", "model_intent"}, kinds(d))
	call := l.live.Open[1]
	assert.Same(t, l.live.Frames()[1], l.live.Scoring.Frame)
	l.step(nothing, nil)
	assert.Equal(t, []string{"limit_hit"}, kinds(l.step(nothing, nil)))
	assert.True(t, l.live.Cuts(call))

	d = l.step(answers(stoppedModel(call)), nil)
	assert.Equal(t, []string{"model_outcome", "agent_ended", "message_added", "step_ended", "run_state_changed", "score_intent", "model_intent"}, kinds(d))
	assert.True(t, d.Entries[0].Event.GetModelOutcome().GetInterrupted())
	assert.Equal(t, "Start.|limit time", conversation(l.live.Frame))
	assert.False(t, l.live.Scoring.Intermediate, "the round is that of the run")
	d = l.step(answers(said(l.live.Open[0], assistant("C"))), nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, d.Finished.GetState())
	assert.Equal(t, "C", l.live.FinalScores()[0].GetScore().GetValue().GetText())
	assert.Empty(t, only(d, "score_intent"))
}
