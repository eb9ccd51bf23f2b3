package run

import (
	"fmt"
	"slices"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
)

// Purposes of effects that no agent wants; those of agents are [agent.PurposeAgent] and [agent.PurposeCompaction].
const (
	PurposeScore   = "score"
	PurposeOutside = "outside" // of the agent, by a program that acts for it
)

// Intent is an effect that was journaled and has no outcome yet. The owner of the run ensures that the effect is
// requested.
type Intent struct {
	// Event is the intent's event: a ModelIntent, ToolIntent, SandboxIntent, ExecIntent or WorkerIntent, which an owner
	// executes, or the AgentBegan of a child.
	Event *agentv1.Event
	// Frame is the agent that it belongs to.
	Frame *Frame
	// Wait is why the effect could not run yet; nil if there is no reason.
	Wait *agentv1.RunWait
	// Away is how long no replica drove the run in the meantime.
	Away time.Duration
	// Stopped is why the effect alone is stopped; zero if it is not.
	Stopped Stop
	// Stage is the request of a tool call that was requested from outside; nil for other effects.
	Stage *Stage
}

// Seq is the number of the intent's event.
func (i *Intent) Seq() int64 { return i.Event.GetSeq() }

// Outside reports whether the effect was requested from outside, rather than by the agent.
func (i *Intent) Outside() bool { return journal.ClientKey(i.Event) != "" }

// purposeOf returns the purpose of an intent; empty for events without one.
func purposeOf(e *agentv1.Event) string {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_ModelIntent:
		return k.ModelIntent.GetPurpose()
	case *agentv1.Event_ExecIntent:
		return k.ExecIntent.GetPurpose()
	case *agentv1.Event_WorkerIntent:
		return k.WorkerIntent.GetPurpose()
	}
	return ""
}

// Interrupted reports whether the effect is stopped while its run continues: by itself, or with its agent.
func (i *Intent) Interrupted() bool { return i.Stopped != 0 || i.Frame.Ending() }

// Since is when it was journaled.
func (i *Intent) Since() time.Time { return timeOf(i.Event.GetTime()) }

// begin adds an intent to the list of the run and to that of its frame.
func (s *State) begin(f *Frame, e *agentv1.Event) *Intent {
	i := &Intent{Event: e, Frame: f}
	s.Open, f.open = append(s.Open, i), append(f.open, i)
	return i
}

// end takes an intent off the lists.
func (s *State) end(seq int64) (*Intent, error) {
	at := slices.IndexFunc(s.Open, func(i *Intent) bool { return i.Seq() == seq })
	if at < 0 {
		return nil, fmt.Errorf("an outcome of %d, which is no open intent", seq)
	}
	intent := s.Open[at]
	s.Open = slices.Delete(slices.Clone(s.Open), at, at+1)
	intent.Frame.open = slices.DeleteFunc(slices.Clone(intent.Frame.open), func(i *Intent) bool { return i == intent })
	return intent, nil
}

// OpenIntent returns the open intent of that number, or nil.
func (s *State) OpenIntent(seq int64) *Intent {
	for _, i := range s.Open {
		if i.Seq() == seq {
			return i
		}
	}
	return nil
}

func (s *State) modelOutcome(f *Frame, e *agentv1.Event, o *agentv1.ModelOutcome) error {
	ended, err := s.end(o.GetIntent())
	if err != nil {
		return err
	}
	intent := ended.Event.GetModelIntent()
	if o.GetCache() != modelv1.CacheUse_CACHE_USE_READ {
		s.spend(f, intent, o.GetUsage())
	}
	s.work(f, o.GetTiming().GetWorking().AsDuration())
	s.Retries += max(0, int(o.GetTiming().GetAttempts())-1)
	s.LostModelCalls += lost(o)
	switch {
	case o.GetInterrupted(), agent.Repeatable(o.GetError()):
		return nil
	case intent.GetPurpose() == PurposeScore:
		s.judged(ended, o)
		return nil
	case o.GetError() != nil:
		if !ended.Outside() && !intent.GetMayFail() {
			s.fail(o.GetError())
		}
		return nil
	}
	own, turn := intent.GetPurpose() == agent.PurposeAgent, intent.GetPurpose() == agent.PurposeAgent || ended.Outside()
	if turn {
		s.Answers++
	}
	if sent := f.Sent(); own && intent.GetContent() == nil {
		sent.told = min(int(intent.GetMessageCount()), sent.Len())
	}
	if own && !s.Stopping() {
		f.answer, f.answered = o.GetContent().GetOutput(), e.GetSeq()
	}
	if turn && !s.Stopping() {
		f.scopes(func(at *Frame) {
			if at.Bounds.Spent(limit.Use{Usage: at.total}) == nil {
				at.turns++
			}
		})
		if s.Limits.Spent(f.Use()) == nil {
			s.Turns++
		}
	}
	return nil
}

// lost counts the lost calls of an effect: each call that was repeated, and the last call if its end is unknown.
func lost(o *agentv1.ModelOutcome) int {
	n := int(o.GetTiming().GetReissues())
	if agent.Lost(o.GetError()) {
		n++
	}
	return n
}

// spend adds a call's usage to the sums.
func (s *State) spend(f *Frame, intent *agentv1.ModelIntent, usage *modelv1.ModelUsage) {
	if usage == nil {
		return
	}
	s.Usage[intent.GetModel()] = chat.AddUsage(s.Usage[intent.GetModel()], usage)
	if role := intent.GetRole(); role != "" {
		s.RoleUsage[role] = chat.AddUsage(s.RoleUsage[role], usage)
	}
	s.Total = chat.AddUsage(s.Total, usage)
	f.scopes(func(at *Frame) { at.total = chat.AddUsage(at.total, usage) })
}

// work adds working time of an effect.
func (s *State) work(f *Frame, d time.Duration) {
	s.Working += d
	f.scopes(func(at *Frame) { at.worked += d })
}

// fail notes a failure that ends the run, unless the run is ending anyway.
func (s *State) fail(err *agentv1.RunError) {
	if !s.Stopping() && s.Fault == nil {
		s.Fault = err
	}
}

func (s *State) sandboxOutcome(o *agentv1.SandboxOutcome) error {
	if _, err := s.end(o.GetIntent()); err != nil {
		return err
	}
	if o.GetError() != nil {
		if !agent.Repeatable(o.GetError()) {
			s.fail(o.GetError())
		}
		return nil
	}
	s.Sandboxes[o.GetEnvironment()] = &Sandbox{Name: o.GetSandbox().GetName()}
	return nil
}

func (s *State) execOutcome(o *agentv1.ExecOutcome) error {
	ended, err := s.end(o.GetIntent())
	if err != nil {
		return err
	}
	s.work(ended.Frame, o.GetTiming().GetWorking().AsDuration())
	switch {
	case ended.Event.GetExecIntent().GetPurpose() == PurposeScore:
		s.judged(ended, o)
	case o.GetError() != nil && !o.GetInterrupted() && !ended.Outside():
		s.fail(o.GetError())
	}
	return nil
}

func (s *State) workerOutcome(o *agentv1.WorkerOutcome) error {
	intent, err := s.end(o.GetIntent())
	if err != nil {
		return err
	}
	s.work(intent.Frame, o.GetTiming().GetWorking().AsDuration())
	s.change(o.GetContent().GetStoreChanges())
	switch {
	case intent.Event.GetWorkerIntent().GetPurpose() == PurposeScore:
		s.judged(intent, o)
	case o.GetError() != nil && !o.GetInterrupted():
		s.fail(o.GetError())
	}
	return nil
}
