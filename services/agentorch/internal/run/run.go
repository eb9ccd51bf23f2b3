// Package run holds the state of a run: the fold of its journal.
//
// [State] results from applying the run's events in order, and from nothing else. Therefore the state in memory of an
// active run equals the state that a successor folds from the journal. The tests assert this:
//
//	fold(e1 … en)  =  apply(fold(e1 … ek), ek+1 … en)
//
// The life of a run, as RunStateChanged events record it:
//
//	PENDING ─▶ RUNNING ─▶ SCORING ─▶ SUCCEEDED          the agent ended, or a bound ended it (RunFinished.limit says which)
//	             │ ▲         └─────▶ FAILED               an error ended it; scored first where score_on_error asks for it
//	             ▼ │                 CANCELLED            an operator ended it
//	           WAITING   for capacity, a person, a hold; durable, and without a goroutine
//
// A run is stopping from the event that ends it (LimitHit, ErrorRaised, a cancel) until every open intent has its
// outcome. Only then is it scored and its sandboxes are removed.
package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
)

// FoldVersion is the version of the fold that new runs pin. A fold that reads events otherwise gets a new one, and old
// runs keep theirs.
const FoldVersion = 1

// Agents makes the machines of steps.
type Agents interface {
	New(step *agentv1.AgentRef) (agent.Machine, error)
}

// State is a run, folded from its journal. Only Apply changes it. Only one goroutine may use it at a time. Callers must
// not change the values that its fields refer to.
//
// It is a tree of frames, the active agents. The state of one agent is in its [Frame], everything else is here.
type State struct {
	// Frame is the root.
	*Frame

	// Name is the run's resource name, which is its journal's.
	Name string
	// Seq is the number of the last event, Epoch the epoch of the owner that appended it.
	Seq, Epoch int64
	// OwnerEpoch is the epoch under which the run is driven, which its requests carry; 0 for a state that is only read.
	// It is no part of the fold: the engine sets it.
	OwnerEpoch int64
	// Owner is the replica that the journal names last; empty before the first change.
	Owner string
	// Phase is the run's phase of life. Wait is what the run waits for: nil unless every part that could progress
	// waits. Both follow from Pause and the waits of frames and intents.
	Phase agentv1.RunState
	Wait  *agentv1.RunWait
	// Pause is what the run as a whole waits for, whatever its agents could do; nil if there is nothing.
	Pause *agentv1.RunWait
	// TooNew is set if this version cannot own the run: it does not know the run's fold or a critical event.
	TooNew bool

	// Warnings name the parts of the specification that are not honoured.
	Warnings []*agentv1.EvalWarning
	// Limits are the present limits, retuned ones included.
	Limits *limit.Set
	// Turns counts the agent's model calls whose answers were within the limits, Answers all answered calls.
	Turns, Answers int
	// Retries counts attempts of model calls that failed and were repeated.
	Retries int
	// Usage, by model, and RoleUsage, by role, are sums over all model calls; Total is the sum of all.
	Usage, RoleUsage map[string]*modelv1.ModelUsage
	Total            *modelv1.ModelUsage
	// LostModelCalls counts model calls that were lost with the process that made them. Their cost is unknown, so the
	// sums of usage exclude it.
	LostModelCalls int
	// Working is wall time less waiting.
	Working time.Duration

	// Step is the index of the present step, -1 before the first. StepsDone is set when no step is left.
	Step      int
	StepsDone bool

	// Open are the intents of all frames without an outcome, oldest first.
	Open []*Intent
	// Scoring is the open round of scoring; nil if there is none.
	Scoring *Scoring
	// Sandboxes are the run's sandboxes by environment.
	Sandboxes map[string]*Sandbox
	// SandboxFault is why a sandbox could not be used, as the first such tool result reported it. The run continues
	// without the sandbox.
	SandboxFault string

	// Held is set while an operator holds the run.
	Held bool
	// Cancel is an operator's cancel; nil if there is none.
	Cancel *Cancel
	// Fault is a failure that has yet to be raised as the run's error.
	Fault *agentv1.RunError
	// Limit and Error are the reason why the run ends or ended; nil before.
	Limit *agentv1.LimitReached
	Error *agentv1.RunError
	// Finished is set once the run has ended. Only edits follow.
	Finished bool

	// Created, Started, Scored and Ended are when the run was made, its first step began, its scorers began and it
	// ended; zero before.
	Created, Started, Scored, Ended time.Time

	agents     Agents
	phase      agentv1.RunState // less its waits
	frames     []*Frame         // active, the oldest first
	spec       *agentv1.RunSpec
	plainSpec  *agentv1.RunSpec         // spec without content, once it was asked for
	tools      []*toolv1.ToolDefinition // of all steps, in which a name means one tool
	store      map[string]string
	scores     []*agentv1.NamedScore
	lastScores []*agentv1.NamedScore
	scoringCut bool
	// away is how long no replica drove the run since it started. awayAtScoring is the value of away when scoring
	// began.
	away, awayAtScoring time.Duration
	// waiting is when the phase changed last. awayAtWait is the value of away at that time.
	waiting    time.Time
	awayAtWait time.Duration
}

// Cancel is an operator's wish that the run ends.
type Cancel struct {
	// Command is the id of the command.
	Command string
	// Mode is the outcome that the run gets.
	Mode agentv1.CancelMode
	// Acknowledged is set once no effect is open any more.
	Acknowledged bool
}

// Sandbox is a sandbox of a run.
type Sandbox struct {
	// Name is its resource name.
	Name string
	// Removed is set once the sandbox was removed, or left to the expiry of its lease.
	Removed bool
}

// New returns the state of a run without events.
func New(name string, agents Agents) *State {
	s := &State{
		Name: name, Step: -1, agents: agents, Usage: map[string]*modelv1.ModelUsage{}, RoleUsage: map[string]*modelv1.ModelUsage{},
		Sandboxes: map[string]*Sandbox{}, store: map[string]string{},
	}
	s.Frame = &Frame{run: s}
	s.frames = []*Frame{s.Frame}
	return s
}

// Project returns the project's id, ID the run's.
func (s *State) Project() string { return strings.Split(s.Name, "/")[1] }

// ID returns the run's id.
func (s *State) ID() string { return s.Name[strings.LastIndexByte(s.Name, '/')+1:] }

// Parent returns `projects/{project}`.
func (s *State) Parent() string { return resource.Project(s.Project()) }

// Key returns the key of the effect whose intent has a number.
func (s *State) Key(seq int64) string { return fmt.Sprintf("%s/%d", s.ID(), seq) }

// Store returns the whole store. It must not be changed.
func (s *State) Store() map[string]string { return s.store }

// FinalScores returns the scores that the run ended with.
func (s *State) FinalScores() []*agentv1.NamedScore { return s.scores }

// Stopping reports whether something has ended the run. From then on only effects of scoring and closing start.
func (s *State) Stopping() bool { return s.Limit != nil || s.Error != nil || s.Cancel != nil }

// Cutting reports whether the open effects are to be stopped: those of the agent once something has ended the run,
// those of its scoring only if that came later.
func (s *State) Cutting() bool {
	return s.Stopping() && (!s.Judging() || s.scoringCut)
}

// Cuts reports whether an open effect is to be stopped.
func (s *State) Cuts(i *Intent) bool { return s.Cutting() || i.Interrupted() }

// UnderWay reports whether an effect is requested from an owner. Active agents do not count as effects.
func (s *State) UnderWay() bool {
	return slices.ContainsFunc(s.Open, func(i *Intent) bool { return journal.Intent(i.Event) })
}

// Judging reports whether the run's final scoring is open, including a wait for a scorer.
func (s *State) Judging() bool { return s.Scoring != nil && !s.Scoring.Intermediate }

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
