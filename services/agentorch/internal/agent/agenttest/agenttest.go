// Package agenttest runs agents in tests: it does the work of the engine around a machine, with scripted effects, and
// checks the machine's contract. At every decision a new machine with the same events must return the same action.
package agenttest

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// Script is the start of a run and the results of the agent's effects.
type Script struct {
	// Spec is the run's specification; its input begins the conversation.
	Spec *agentv1.RunSpec
	// Store is the run's store, as JSON.
	Store map[string]string
	// Answers are those of the model, in order. Nil is a call that fails for a transient reason.
	Answers []*modelv1.ModelOutput
	// Results returns the results of tools that are not the agent's own; nil returns the text "ok" for all.
	Results func(call *toolv1.ToolCall) *toolv1.ToolResult
	// Scores are those of the requested rounds, in order.
	Scores []*agentv1.ScoreValue
	// Told are the results of workers, in order: the JSON form of their kind's result.
	Told []string
	// Posts are messages of an operator; each wait takes one.
	Posts []string
}

// Played is the result of a script.
type Played struct {
	// Effects are the agent's effects and notes in order: `ask`, `call ID FUNCTION`, `KIND NAME` of a worker, `score`,
	// `wait`, `note CODE`, `done`, `completed`, `stop TYPE`.
	Effects []string
	// Asked are the model calls that it wanted.
	Asked []agent.Generate
	// Err is the error of Next.
	Err error

	view
}

// maxActions bounds a play; more are an agent that does not end.
const maxActions = 1000

// Play resolves a step and has its agent act until the step ends.
func Play(t testing.TB, d agent.Definition, step *agentv1.AgentRef, s Script) *Played {
	t.Helper()
	resolved, err := agent.NewRegistry(d).Resolve(step)
	require.NoError(t, err)
	again, err := agent.NewRegistry(d).Resolve(resolved)
	require.NoError(t, err, "a resolved step resolves")
	require.True(t, proto.Equal(resolved, again), "a resolved step resolves to itself:\n%v\n%v", resolved, again)
	if d.Workers != nil {
		resolved.Workers, err = d.Workers(resolved)
		require.NoError(t, err)
	}
	p := &player{t: t, d: d, step: resolved, script: s, Played: &Played{}}
	p.spec = s.Spec
	if p.spec == nil {
		p.spec = &agentv1.RunSpec{}
	}
	p.Conversation, p.store = agent.NewConversation(p.spec.GetInput()), s.Store
	if p.store == nil {
		p.store = map[string]string{}
	}
	p.machine = p.fresh()
	for range maxActions {
		if over := p.act(); over {
			return p.Played
		}
	}
	require.Fail(t, "the agent does not end")
	return nil
}

type player struct {
	*Played

	t       testing.TB
	d       agent.Definition
	step    *agentv1.AgentRef
	script  Script
	machine agent.Machine
	events  []*agentv1.Event
}

func (p *player) fresh() agent.Machine {
	machine, err := p.d.New(p.step)
	require.NoError(p.t, err)
	return machine
}

// decide calls Next of the machine, and of a new one that has read all events.
func (p *player) decide() (agent.Action, error) {
	action, err := p.machine.Next(&p.view)
	other := p.fresh()
	for _, e := range p.events {
		other.Apply(e)
	}
	same, otherErr := other.Next(&p.view)
	assert.Equal(p.t, err, otherErr)
	assert.True(p.t, reflect.DeepEqual(action.Then, same.Then), "a successor wants %#v in place of %#v", same.Then, action.Then)
	if assert.Len(p.t, same.Events, len(action.Events)) {
		for i, e := range action.Events {
			assert.True(p.t, proto.Equal(e, same.Events[i]), "a successor appends %v in place of %v", same.Events[i], e)
		}
	}
	return action, err
}

func (p *player) act() (over bool) {
	action, err := p.decide()
	if err != nil {
		p.Err = err
		return true
	}
	for _, e := range action.Events {
		p.emit(e)
	}
	switch then := action.Then.(type) {
	case nil:
		require.NotEmpty(p.t, action.Events, "the agent does not know what to do")
	case agent.Generate:
		p.generate(then)
	case agent.CallTools:
		p.callTools()
	case agent.Ask:
		p.consult(then)
	case agent.Score:
		p.score()
	case agent.Wait:
		p.wait()
	case agent.Done:
		p.Effects = append(p.Effects, map[bool]string{false: "done", true: "completed"}[then.Completed])
		return true
	}
	return false
}

func (p *player) generate(g agent.Generate) {
	p.Effects, p.Asked = append(p.Effects, "ask"), append(p.Asked, g)
	asking, ok := p.machine.(agent.Asking)
	require.True(p.t, ok, "the agent asks a model, and did not tell that it would")
	told := func(ask agent.Generate) bool { return ask.Model == g.Model && proto.Equal(ask.Config, g.Config) }
	assert.True(p.t, slices.ContainsFunc(asking.Asks(), told), "the agent did not tell that it would ask for %v", g)
	require.NotEmpty(p.t, p.script.Answers, "the agent asks more often than there are answers")
	answer := p.script.Answers[0]
	p.script.Answers = p.script.Answers[1:]
	p.emit(&agentv1.Event{Kind: &agentv1.Event_ModelIntent{ModelIntent: &agentv1.ModelIntent{Purpose: agent.PurposeAgent}}})
	outcome := &agentv1.ModelOutcome{Intent: int64(len(p.events))}
	if answer == nil {
		outcome.Error = &agentv1.RunError{Reason: "PROVIDER_RATE_LIMITED"}
	} else {
		answer = proto.CloneOf(answer)
		chat.FirstMessage(answer).Id = fmt.Sprint("a", len(p.events))
		p.answer = answer
		outcome.StopReason, outcome.Content = chat.StopReason(answer), &agentv1.ModelOutcomeContent{Output: answer}
	}
	p.emit(&agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: outcome}})
}

func (p *player) callTools() {
	message := chat.LastAssistant(p.Messages())
	require.NotEmpty(p.t, message.GetToolCalls(), "there are no calls to run")
	p.emit(&agentv1.Event{Kind: &agentv1.Event_ToolsReviewed{ToolsReviewed: &agentv1.ToolsReviewed{MessageId: message.GetId()}}})
	for _, call := range message.GetToolCalls() {
		p.Effects = append(p.Effects, "call "+call.GetId()+" "+call.GetFunction())
		result := p.result(call)
		p.emit(agent.Add(&modelv1.ChatMessage{
			Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{call.GetId()}, Function: call.GetFunction(), Content: result.GetContent(), Error: result.GetError(),
		}))
	}
}

func (p *player) result(call *toolv1.ToolCall) *toolv1.ToolResult {
	for _, ref := range p.step.GetTools() {
		if run.VisibleName(ref) == call.GetFunction() && ref.GetDefinition().GetCallerRuns() {
			return p.machine.Call(&p.view, call)
		}
	}
	if p.script.Results != nil {
		return p.script.Results(call)
	}
	return &toolv1.ToolResult{Content: chat.TextContent("ok")}
}

func (p *player) score() {
	p.Effects = append(p.Effects, "score")
	require.NotEmpty(p.t, p.script.Scores, "the agent wants more scores than there are")
	p.scores = []*agentv1.NamedScore{{Name: "scripted", Score: &agentv1.Score{Value: p.script.Scores[0]}}}
	p.script.Scores = p.script.Scores[1:]
	p.emit(&agentv1.Event{Kind: &agentv1.Event_ScoreOutcome{ScoreOutcome: &agentv1.ScoreOutcome{Intermediate: true}}})
}

func (p *player) consult(a agent.Ask) {
	p.Effects = append(p.Effects, a.Worker.GetKind()+" "+a.Worker.GetName())
	require.NotEmpty(p.t, p.script.Told, "the agent asks workers more often than they answer")
	told := p.script.Told[0]
	p.script.Told = p.script.Told[1:]
	p.emit(&agentv1.Event{Kind: &agentv1.Event_WorkerIntent{WorkerIntent: &agentv1.WorkerIntent{Worker: a.Worker, Purpose: agent.PurposeAgent}}})
	p.emit(&agentv1.Event{Kind: &agentv1.Event_WorkerOutcome{WorkerOutcome: &agentv1.WorkerOutcome{
		Intent: int64(len(p.events)), Content: &agentv1.WorkerAnswer{PayloadJson: told},
	}}})
}

func (p *player) wait() {
	p.Effects = append(p.Effects, "wait")
	require.NotEmpty(p.t, p.script.Posts, "the agent waits for a message that never comes")
	message := agent.Says(modelv1.Role_ROLE_USER, p.script.Posts[0])
	p.script.Posts = p.script.Posts[1:]
	p.emit(agent.Add(message))
}

// emit appends an event as the engine does.
func (p *player) emit(e *agentv1.Event) {
	e = proto.CloneOf(e)
	e.Seq = int64(len(p.events) + 1)
	if m := e.GetMessageAdded().GetContent(); m != nil && m.GetId() == "" {
		m.Id = fmt.Sprint("m", e.GetSeq())
	}
	if code := e.GetInfo().GetCode(); code != "" {
		p.Effects = append(p.Effects, "note "+code)
	}
	p.events = append(p.events, e)
	p.apply(e)
	p.machine.Apply(e)
}
