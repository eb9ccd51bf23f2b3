// Package agent is the port to agents and solvers: what a step of a run can be.
//
// An agent is a pure reducer. Its [Machine] is a fold of the run's journal, as the run itself is, and says what to do
// next:
//
//	   ┌──────────── Apply(event), for every event of the step ◀─────────────┐
//	   ▼                                                                      │
//	Machine ── Next ──▶ Action{events to append, then an effect} ──▶ engine ──┘
//	                     (messages, history …)     (generate, call tools, score, wait, done)
//
// Next is asked while nothing of the agent is under way: every effect that it wanted has ended in the journal. A
// [Watching] machine is asked after each of them. It does no I/O and draws no random numbers, so that a successor that
// folds the same journal comes to the same action, and no goroutine waits inside an agent.
package agent

import (
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Definition describes an agent or solver that runs can name.
type Definition struct {
	// Name is what a run's steps write.
	Name string
	// Description says in a sentence what it does.
	Description string
	// Parameters is the JSON Schema of its parameters, an object that allows no others.
	Parameters string
	// Resolve checks a step whose parameters keep to the schema, and writes into it all that a later version might read
	// otherwise: defaults, prompts, tools of its own. What it leaves is pinned in the run. Its errors name the
	// parameter.
	Resolve func(step *agentv1.AgentRef) error
	// Workers tells which functions of a step workers are to serve: kinds and names. Nil: none.
	Workers func(step *agentv1.AgentRef) ([]*agentv1.WorkerRef, error)
	// New makes the machine of a resolved step.
	New func(step *agentv1.AgentRef) (Machine, error)
}

// Machine is an agent at work on one step.
type Machine interface {
	// Apply folds an event of the step that was appended. The run has folded it already.
	Apply(event *agentv1.Event)
	// Next says what to do now. An error ends the run. After a model call that failed for a reason that passes it is
	// asked again at the same place. After an Interrupted event that cut its turn it is asked when all that was under way
	// has ended, and waits for an operator's message.
	Next(run View) (Action, error)
	// Call runs a call of one of the agent's own tools, which no one else knows. It is pure.
	Call(run View, call *toolv1.ToolCall) *toolv1.ToolResult
	// ToolBound returns the bound of a tool's text result in bytes that the agent sets, if it does; 0 never cuts.
	ToolBound(function string) (maxBytes int64, set bool)
}

// Watching is a machine that goes on while effects of it are under way: it is asked again whenever one of them has
// ended. Where it has nothing to do until the next one, it wants neither events nor effects.
type Watching interface {
	Machine
	// Watches only marks the machine.
	Watches()
}

// IsWatching reports whether a machine is asked while effects of it are under way.
func IsWatching(m Machine) bool {
	_, watching := m.(Watching)
	return watching
}

// Demanding is a machine that needs more of a run than a conversation, and can tell before the run starts that it
// lacks.
type Demanding interface {
	Machine
	// Demand fails with INVALID_REQUEST where the run can only fail.
	Demand(spec *agentv1.RunSpec) error
}

// Asking is a machine that knows before the run starts which models it may call, so that a model that cannot be called
// is refused before anything runs, and one that is never called is warned of. Parameters that name a model and options
// are called model and config.
type Asking interface {
	Machine
	// Asks returns the calls that the machine may ask for, as far as model and configuration differ; none where it asks
	// for none.
	Asks() []Generate
}

// View is what a machine sees of its run. Nothing in it may be changed.
type View interface {
	// Spec is what the run was made of, content included.
	Spec() *agentv1.RunSpec
	// Messages is the conversation.
	Messages() []*modelv1.ChatMessage
	// Output is the last output that was taken into the conversation, or nil.
	Output() *modelv1.ModelOutput
	// Answer is what the last model call of the step gave, whether it was taken or not; nil before the first.
	Answer() *modelv1.ModelOutput
	// Stored returns an entry of the run's store, as JSON.
	Stored(key string) (valueJSON string, ok bool)
	// Scores are what the last [Score] gave, by scorer.
	Scores() []*agentv1.NamedScore
}

// Action is what a machine wants: first the events, then what follows. Both are journaled in one append. Nil Then asks
// again after the events.
//
// Events need neither sequence numbers, times nor ids; messages without an id get one. Messages that are added next to
// each other are added together or, where a bound of messages forbids it, not at all.
type Action struct {
	Events []*agentv1.Event
	Then   Then
}

// Then is what follows an action's events: an effect, which is one of [Generate], [CallTools], [Ask], [Start] and
// [Score], several of them as [All], [Wait] or [Done].
type Then interface{ then() }

// Generate calls a model with the conversation, and ends with a ModelOutcome. The answer is not added to the
// conversation. An interrupted call has no answer.
type Generate struct {
	// Model is `provider/name`, or a role of the run; empty is the run's model.
	Model string
	// NoTools offers no tools; else those of the step are on offer.
	NoTools bool
	// ToolChoice is which tools may or must be called; nil leaves it to the model.
	ToolChoice *toolv1.ToolChoice
	// Config lies over the run's configuration.
	Config *modelv1.GenerateConfig
}

// CallTools runs the tool calls of the conversation's last assistant message, and ends when their results are in the
// conversation.
type CallTools struct{}

// Ask asks a worker that is pinned in the step, and ends with a WorkerOutcome. One that failed ends the run.
type Ask struct{ Worker *agentv1.WorkerRef }

// Score has the run's scorers judge it as it stands, and ends with a ScoreOutcome of each. The run must have scorers.
type Score struct{}

// Wait waits durably until an operator sends a message, which is then in the conversation.
type Wait struct{}

// Start sets another agent to work, with a conversation of its own, and ends with an AgentEnded, which has its output.
type Start struct {
	// Agent is the agent, resolved.
	Agent *agentv1.AgentRef
	// Tools are the definitions of its tools. Not needed are those that a reference holds, and those of the agent that
	// starts it where both have the same reference.
	Tools []*toolv1.ToolDefinition
	// Messages are what its conversation begins with.
	Messages []*modelv1.ChatMessage
	// Limits are bounds of it and of those that it starts; one that is reached ends it and not the run. Nil are none.
	Limits *agentv1.RunLimits
}

// All is several effects, which begin together. One [CallTools] may be among them.
type All []Then

// Done ends the step, or the agent that another started: its output is what the other hears.
type Done struct {
	// Completed says that the run is complete: later steps are left out.
	Completed bool
}

func (Generate) then()  {}
func (CallTools) then() {}
func (Ask) then()       {}
func (Start) then()     {}
func (All) then()       {}
func (Score) then()     {}
func (Wait) then()      {}
func (Done) then()      {}
