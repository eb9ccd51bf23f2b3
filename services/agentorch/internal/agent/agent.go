// Package agent is the port to agents and solvers: what a step of a run can be.
//
// An agent is a pure reducer. Its [Machine] is a fold of the run's journal, like the run itself, and decides the next
// action:
//
//	   ┌──────────── Apply(event), for every event of the step ◀─────────────┐
//	   ▼                                                                      │
//	Machine ── Next ──▶ Action{events to append, then an effect} ──▶ engine ──┘
//	                     (messages, history …)     (generate, call tools, score, wait, done)
//
// Next is called while the agent has no open effect: every effect that it wanted has ended in the journal. For a
// [Watching] machine it is called after each of them. Next does no I/O and draws no random numbers, so that a successor
// that folds the same journal gets the same action, and no goroutine waits inside an agent.
package agent

import (
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Definition describes an agent or solver that runs can name.
type Definition struct {
	// Name is the agent's name in a run's steps.
	Name string
	// Description describes the agent in one sentence.
	Description string
	// Parameters is the JSON Schema of its parameters, an object that allows no others.
	Parameters string
	// Resolve checks a step whose parameters conform to the schema, and writes into it everything that a later version
	// might interpret differently: defaults, prompts, tools of its own. The run pins the result. Errors name the
	// parameter.
	Resolve func(step *agentv1.AgentRef) error
	// Workers returns the functions of a step that workers must serve: kinds and names. Nil: none.
	Workers func(step *agentv1.AgentRef) ([]*agentv1.WorkerRef, error)
	// Windows returns the context windows that a resolved step must know; nil: none.
	Windows func(step *agentv1.AgentRef) ([]Window, error)
	// New returns the machine of a resolved step.
	New func(step *agentv1.AgentRef) (Machine, error)
}

// Window names a context window that an agent must know.
type Window struct {
	// Model is the model as the agent's parameters name it.
	Model string
	// Default is the window that the agent assumes if none is known, in tokens, which causes a warning; 0 means that the
	// agent needs none.
	Default int64
}

// Machine is an agent that runs one step.
type Machine interface {
	// Apply folds an event of the step that was appended. The run has folded it already.
	Apply(event *agentv1.Event)
	// Next returns the next action. An error ends the run. After a model call that failed for a transient reason, it is
	// called again in the same state. After an Interrupted event that cut its turn, it is called when all open effects
	// have ended, and waits for an operator's message.
	Next(run View) (Action, error)
	// Call runs a call of one of the agent's own tools. It is pure.
	Call(run View, call *toolv1.ToolCall) *toolv1.ToolResult
	// ToolBound returns the bound of a tool's text result in bytes that the agent sets, if it does; 0 never cuts.
	ToolBound(function string) (maxBytes int64, set bool)
}

// Watching is a machine that acts while its effects are open: Next is called whenever one of them has ended. If there
// is nothing to do until the next end, it returns neither events nor effects.
type Watching interface {
	Machine
	// Watches only marks the machine.
	Watches()
}

// IsWatching reports whether Next of a machine is called while its effects are open.
func IsWatching(m Machine) bool {
	_, watching := m.(Watching)
	return watching
}

// Demanding is a machine that needs more of a run than a conversation, and can report before the run starts that it is
// missing.
type Demanding interface {
	Machine
	// Demand fails with INVALID_REQUEST if the run can only fail.
	Demand(spec *agentv1.RunSpec) error
}

// Cautious is a machine that can find, before the run starts, a parameter that is probably a mistake.
type Cautious interface {
	Machine
	// Warn describes the mistake for people; empty if there is none.
	Warn(spec *agentv1.RunSpec) string
}

// Asking is a machine that knows before the run starts which models it may call. A model that cannot be called is then
// refused before the run starts, and a model that is never called causes a warning. Parameters that name a model and
// options are called model and config.
type Asking interface {
	Machine
	// Asks returns the calls that the machine may make, one for each different pair of model and configuration; none if
	// it makes no calls.
	Asks() []Generate
}

// View is a machine's view of its run. Machines must not change anything in it.
type View interface {
	// Spec is the run's specification, content included.
	Spec() *agentv1.RunSpec
	// Messages is the conversation.
	Messages() []*modelv1.ChatMessage
	// Input is what the agent's model is sent: the conversation or, after a compaction, the result of that and the
	// messages since then.
	Input() []*modelv1.ChatMessage
	// Tools are the definitions of the step's tools, in order.
	Tools() []*toolv1.ToolDefinition
	// Output is the last output that was taken into the conversation, or nil.
	Output() *modelv1.ModelOutput
	// Answer is the result of the last model call of the step, whether it was accepted or not; nil before the first.
	Answer() *modelv1.ModelOutput
	// Stored returns an entry of the run's store, as JSON.
	Stored(key string) (valueJSON string, ok bool)
	// Scores are the results of the last [Score], by scorer.
	Scores() []*agentv1.NamedScore
}

// Action is what a machine wants: first the events, then what follows. Both are journaled in one append. If Then is
// nil,
// Next is called again after the events.
//
// Events need neither sequence numbers, times nor ids; messages without an id get one. Consecutive added messages are
// added together or, if a limit on messages forbids that, not at all.
type Action struct {
	Events []*agentv1.Event
	Then   Then
}

// Then follows an action's events: an effect, which is one of [Generate], [Compact], [CallTools], [Ask], [Start] and
// [Score], several of them as [All], [Wait] or [Done].
type Then interface{ then() }

// Purposes of the calls of models and workers that an agent wants.
const (
	PurposeAgent      = "agent"      // a turn
	PurposeCompaction = "compaction" // a [Compact]
)

// Generate calls a model with the agent's input, and ends with a ModelOutcome. The answer is not added to the
// conversation. An interrupted call has no answer.
type Generate struct {
	// Model is `provider/name`, or a role of the run; empty is the run's model.
	Model string
	// NoTools offers no tools; otherwise the step's tools are offered.
	NoTools bool
	// ToolChoice is which tools may or must be called; nil leaves it to the model.
	ToolChoice *toolv1.ToolChoice
	// Config overrides fields of the run's configuration.
	Config *modelv1.GenerateConfig
}

// Compact calls a model to shorten messages, which is no turn, and ends with a ModelOutcome.
type Compact struct {
	// Model is as in [Generate].
	Model string
	// Messages are sent in place of the agent's input.
	Messages []*modelv1.ChatMessage
	// Native requests the provider's own compaction, with the step's tools; otherwise the model answers the messages
	// without tools. Instructions say what the provider's must preserve.
	Native       bool
	Instructions string
	// MayFail is set if a failure does not end the run.
	MayFail bool
}

// CallTools runs the tool calls of the conversation's last assistant message, and ends when their results are in the
// conversation.
type CallTools struct{}

// Ask calls a worker that is pinned in the step, and ends with a WorkerOutcome. A failed call ends the run.
type Ask struct{ Worker *agentv1.WorkerRef }

// Score scores the run in its present state with the run's scorers, and ends with a ScoreOutcome per scorer. The run
// must have scorers.
type Score struct{}

// Wait waits durably until an operator sends a message, which is then in the conversation.
type Wait struct{}

// Start sets another agent to work, with a conversation of its own, and ends with an AgentEnded, which has its output.
type Start struct {
	// Agent is the agent, resolved.
	Agent *agentv1.AgentRef
	// Tools are the definitions of its tools. They may omit those that a reference holds, and those of the parent if
	// both have the same reference.
	Tools []*toolv1.ToolDefinition
	// Messages are the start of its conversation.
	Messages []*modelv1.ChatMessage
	// Limits apply to the agent and to those that it starts; a reached limit ends the agent and not the run. Nil means
	// none.
	Limits *agentv1.RunLimits
}

// All is several effects, which begin together. One [CallTools] may be among them.
type All []Then

// Done ends the step, or the agent that another agent started, which then receives the output.
type Done struct {
	// Completed is set if the run is complete: later steps are skipped.
	Completed bool
}

func (Generate) then()  {}
func (Compact) then()   {}
func (CallTools) then() {}
func (Ask) then()       {}
func (Start) then()     {}
func (All) then()       {}
func (Score) then()     {}
func (Wait) then()      {}
func (Done) then()      {}
