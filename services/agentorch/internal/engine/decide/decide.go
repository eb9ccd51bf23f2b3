// Package decide decides what a run does next. It is a function of the run's state and of new facts, without I/O, so
// that a successor that folds the same journal decides the same.
//
//	             ┌───────────────────────── Step ─────────────────────────┐
//	State ─────▶ │ owner and fault · outcomes · commands · bounds of time │ ──▶ Entries for the journal, folded into State:
//	Facts ─────▶ │ then one decision after another, until the run waits   │     the open intents are the effects to begin
//	             └──────────────┬─────────────────────────▲───────────────┘
//	                            └─▶ Review of an agent ───┘ Reviewed, Unreviewed
//
// A review is the only call that an agent needs before a decision. It has no side effect; the caller makes it. While
// the answer is outstanding, the other agents continue, and the agent requests the same review in a later step.
package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

// maxDecisions bounds the decisions of an agent in one step. An agent that exceeds it is faulty. The calls of a message
// are bounded by the message.
const maxDecisions = 10_000

// Reasons of runs' errors that are no reasons of RPC errors.
const (
	reasonScoringTimeout = "SCORING_TIMEOUT" // scorers took longer than half of the time limit
	reasonOperator       = "OPERATOR"        // an operator had the run recorded as an error
)

// The reasons why a journal changed hands, or why its run could not progress for a time.
const (
	Restart  = agentv1.OwnerChangeReason_OWNER_CHANGE_REASON_RESTART
	Takeover = agentv1.OwnerChangeReason_OWNER_CHANGE_REASON_TAKEOVER
	// Outage is not a change: the same replica resumes after a time in which it could not work.
	Outage = agentv1.OwnerChangeReason_OWNER_CHANGE_REASON_OUTAGE
)

// Facts are the inputs of a step besides the state of its run.
type Facts struct {
	// Now is the time of the step.
	Now time.Time
	// Replica owns the run under Epoch.
	Replica string
	Epoch   int64
	// Adopted is why the run changed hands: [Restart], [Takeover], or nothing.
	Adopted agentv1.OwnerChangeReason
	// Away is how long no replica drove the run before this one. Missed is how long this replica could not drive it
	// since its last append.
	Away, Missed time.Duration
	// Fault ends the run, because it could not be driven. Nil if there is none.
	Fault *agentv1.RunError
	// Answers are the answers of effects.
	Answers []Answer
	// Commands are those of the inbox. Unread is set if the inbox also holds a command of a later version.
	Commands []inbox.Command
	Unread   bool
	// Arrived are subjects of waits that have come.
	Arrived []string
	// Lack keeps new work from beginning; empty if there is none.
	Lack string
}

// Answer is the answer of an effect: outcomes, a wait, or both.
type Answer struct {
	// Key is the effect's.
	Key      string
	Outcomes []*agentv1.Event
	Wait     *agentv1.RunWait
}

// Step decides for one run at one time. The state is changed by it, and is of no use when it fails.
type Step struct {
	// Entries are for the journal. They are folded into the state already.
	Entries []journal.Entry
	// Took are the ids of commands that are in the entries.
	Took []string
	// Left is set if a command stays in the inbox because it cannot be applied yet.
	Left bool
	// Row is set if lists must show the change. Intents is set if an effect is about to begin.
	Row, Intents bool
	// Removing is set if the run's sandboxes must be removed before it can end.
	Removing bool
	// Finished is the end of the run, if this step ends it.
	Finished *agentv1.RunFinished
	// Faults are errors whose causes are not journaled.
	Faults []error

	s       *run.State
	facts   Facts
	scorers *score.Registry
	review  *Review         // the requested review; nil if there is none
	acts    int             // decisions of the agent
	asked   []inbox.Command // requests for effects from outside that are not decided yet
	// unreviewed are the agents whose review has no answer yet.
	unreviewed []*run.Frame
}

// New returns a step of a run.
func New(s *run.State, scorers *score.Registry, facts Facts) *Step {
	return &Step{s: s, facts: facts, scorers: scorers}
}

// Decide applies the facts, and decides until the run has to wait. If it returns a review, the caller continues with
// Reviewed or Unreviewed.
func (d *Step) Decide() (*Review, error) {
	for _, begin := range []func() error{d.owned, d.faulty, d.receive, d.commands, d.clocks} {
		if err := begin(); err != nil {
			return nil, err
		}
	}
	return d.next()
}

// owned journals that the run changed hands, and time that its bounds do not count.
func (d *Step) owned() error {
	// OwnerChanged is the first event of an epoch, so an epoch with any event has it already. After a restart it is
	// written only for a run with time limits.
	if timed := d.facts.Away > 0 && d.s.Limits.Timed(); (d.facts.Adopted != 0 || timed) && d.s.Epoch < d.facts.Epoch {
		changed := &agentv1.OwnerChanged{Owner: d.facts.Replica, Reason: cmp.Or(d.facts.Adopted, Restart)}
		if timed {
			changed.Away = durationpb.New(d.facts.Away)
		}
		if err := d.emit(run.NewEvent(changed)); err != nil {
			return err
		}
	}
	if d.facts.Missed > 0 && d.s.Limits.Timed() && !d.s.Started.IsZero() && !d.s.Finished {
		return d.emit(run.NewEvent(&agentv1.OwnerChanged{Owner: d.facts.Replica, Reason: Outage, Away: durationpb.New(d.facts.Missed)}))
	}
	return nil
}

// faulty ends a run that could not be driven.
func (d *Step) faulty() error {
	if d.facts.Fault == nil || d.s.Stopping() {
		return nil
	}
	return d.raise(d.facts.Fault)
}

// receive applies the answers of effects.
func (d *Step) receive() error {
	for _, answer := range d.facts.Answers {
		of := d.openOf(answer.Key)
		for _, e := range answer.Outcomes {
			if err := d.outcome(e); err != nil {
				return err
			}
		}
		var err error
		if answer.Wait != nil {
			err = d.waitOf(of, answer.Wait)
		} else {
			err = d.unrepeated(of, answer.Outcomes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unrepeated fails the run if one of the outcomes of an effect is an error after which the run would repeat the effect,
// but only after a wait: there is none. A rate limit that has outlasted the retries of a call's configuration is one.
func (d *Step) unrepeated(of *run.Intent, outcomes []*agentv1.Event) error {
	for _, e := range outcomes {
		o := e.GetModelOutcome()
		if of != nil && of.Event.GetModelIntent().GetMayFail() && agent.RateLimited(o.GetError()) {
			continue // the agent has another way
		}
		if agent.Repeatable(o.GetError()) && !o.GetInterrupted() && of != nil && !of.Outside() && !d.s.Stopping() && !d.s.Cuts(of) {
			return d.raise(o.GetError())
		}
	}
	return nil
}

// openOf returns the first open intent of a key; nil if there is none, as for effects without an intent.
func (d *Step) openOf(key string) *run.Intent {
	for _, i := range d.s.Open {
		if journal.Intent(i.Event) && journal.RequestID(i.Event) == key {
			return i
		}
	}
	return nil
}

// waitOf journals the wait of an effect. If the effect is over, its agent waits and then asks for another. If the
// effect has no intent, the run waits. An effect that is being stopped does not wait.
func (d *Step) waitOf(i *run.Intent, wait *agentv1.RunWait) error {
	switch {
	case i == nil && d.s.Cutting(), i != nil && d.s.Cuts(i):
		return nil
	case i == nil:
		return d.pause(wait)
	case i.Outside() && d.s.OpenIntent(i.Seq()) == nil:
		return nil // it is over, and its asker decides whether to ask again
	case d.s.OpenIntent(i.Seq()) != nil:
		return d.waitIn(i.Frame, &agentv1.WaitChanged{Intent: i.Seq(), Wait: wait})
	default:
		return d.waitIn(i.Frame, &agentv1.WaitChanged{Wait: wait})
	}
}

func (d *Step) waitIn(f *run.Frame, c *agentv1.WaitChanged) error {
	if c.GetWait() != nil {
		c.Wait.Since, c.Wait.Span = timestamppb.New(d.facts.Now), f.Span
	}
	return d.emitIn(f, run.NewEvent(c))
}

// pause makes the run as a whole wait.
func (d *Step) pause(wait *agentv1.RunWait) error {
	return d.waitIn(d.s.Frame, &agentv1.WaitChanged{Wait: wait, Run: true})
}

// outcome journals an outcome and its immediate consequences: the limits on usage.
func (d *Step) outcome(e *agentv1.Event) error {
	s, f := d.s, d.s.Frame
	if number := journal.IntentOf(e); number != 0 {
		intent := s.OpenIntent(number)
		if intent == nil {
			return nil // a repeated answer
		}
		f = intent.Frame
		if intent.Interrupted() {
			interrupt(intent, e)
		}
	}
	if err := d.emitIn(f, e); err != nil {
		return err
	}
	if o := e.GetModelOutcome(); o == nil || o.GetError() != nil || o.GetInterrupted() || s.Stopping() || s.Scoring != nil {
		return nil
	}
	if reached, of := f.Broken((*limit.Set).AfterGenerate); reached != nil {
		return d.hitIn(of, reached)
	}
	return nil
}

// next decides until the run has to wait for something, or a review.
func (d *Step) next() (*Review, error) {
	for d.acts < maxDecisions {
		switch more, err := d.decision(); {
		case err != nil:
			return nil, err
		case d.review != nil:
			return d.review, nil
		case !more:
			return nil, nil //nolint:nilnil // There is nothing to review.
		}
	}
	return nil, fmt.Errorf("decide: %s: an agent of step %d decides without end", d.s.Name, d.s.Step)
}

// decision makes one decision. It returns false if the run has to wait.
func (d *Step) decision() (more bool, err error) {
	s := d.s
	switch {
	case s.Finished, s.TooNew:
		return false, nil
	case s.Fault != nil:
		return true, d.raise(s.Fault)
	case len(d.asked) > 0:
		return true, d.outside()
	case d.waited() != nil:
		return true, d.emit(d.waited())
	case s.Stopping() && d.idleChild() != nil:
		return true, d.ended(d.idleChild(), &agentv1.AgentEnded{Interrupted: true})
	case (s.Stopping() || s.StepsDone) && len(s.Open) > 0:
		return false, nil // a stopping run waits for cancelled effects, a run in scoring for its scorer's effect
	case s.Cancel != nil && !s.Cancel.Acknowledged:
		return true, d.emit(run.NewEvent(&agentv1.CancelAcknowledged{CommandId: s.Cancel.Command}))
	case s.Stopping() || s.StepsDone:
		return d.conclude()
	case s.Pause != nil:
		return false, nil
	case s.Phase == agentv1.RunState_RUN_STATE_PENDING:
		if wait := waits.ForRoom(d.facts.Lack); wait != nil {
			return false, d.pause(wait)
		}
		return true, d.phase(agentv1.RunState_RUN_STATE_RUNNING)
	case d.facts.Unread:
		if s.UnderWay() {
			return false, nil
		}
		return false, d.pause(waits.ForLaterCommand())
	case s.Held:
		if s.UnderWay() {
			return false, nil
		}
		return false, d.pause(waits.ForHold())
	case s.Frame.Wait == nil && d.lacksSandboxes():
		return true, d.makeSandboxes()
	case d.makingSandboxes():
		return false, nil
	}
	for _, f := range s.Frames() {
		if more, err := d.decideFor(f); more || err != nil || d.review != nil {
			return more, err
		}
	}
	return false, nil
}

// idleChild returns an agent that another agent started and that has no open effect; nil if there is none.
func (d *Step) idleChild() *run.Frame {
	for _, f := range d.s.Frames() {
		if f.Parent != nil && f.Idle() {
			return f
		}
	}
	return nil
}

// decideFor makes one decision for an agent. It returns false if the agent has to wait.
func (d *Step) decideFor(f *run.Frame) (more bool, err error) {
	s, busy := d.s, f.Busy()
	switch {
	case f.Ending():
		if !f.Idle() {
			return false, nil // open effects are being stopped
		}
		return true, d.ended(f, &agentv1.AgentEnded{Limit: f.Reached, Interrupted: f.Reached == nil, Content: f.Output()})
	case f.Wait != nil, f.Stops(), slices.Contains(d.unreviewed, f):
		return false, nil
	case s.Scoring != nil && s.Scoring.Frame == f:
		if busy {
			return false, nil
		}
		return d.judge()
	case busy && !agent.IsWatching(f.Machine):
		return false, nil
	}
	if f.Calls != nil {
		if more, err := d.calls(f); more || err != nil || f.Wait != nil || !agent.IsWatching(f.Machine) {
			return more, err
		}
	}
	if f.Machine == nil {
		next := s.Step + 1
		return true, d.emit(run.NewEvent(&agentv1.StepBegan{Index: int32(next), Name: agent.DisplayName(s.Spec().GetSteps()[next])}))
	}
	d.acts++
	return d.act(f)
}

// waited returns the event that ends a wait; nil if no wait is over.
func (d *Step) waited() (end *agentv1.Event) {
	d.s.Waits(func(wait *agentv1.RunWait, i *run.Intent, f *run.Frame) bool {
		of := f
		if of == nil {
			of = d.s.Frame
		}
		over := waits.Over(wait, waits.Now{
			Time: d.facts.Now, Arrived: d.facts.Arrived, Held: d.s.Held, Posted: len(of.Posted) > 0, Unread: d.facts.Unread, Room: d.facts.Lack == "",
		})
		if over {
			end = wentOn(i, f)
		}
		return !over
	})
	return end
}

// wentOn is the end of the wait of an intent or an agent; of the run if both are nil.
func wentOn(i *run.Intent, f *run.Frame) *agentv1.Event {
	switch {
	case i != nil:
		e := run.NewEvent(&agentv1.WaitChanged{Intent: i.Seq()})
		e.Span = i.Frame.Span
		return e
	case f != nil:
		e := run.NewEvent(&agentv1.WaitChanged{})
		e.Span = f.Span
		return e
	}
	return run.NewEvent(&agentv1.WaitChanged{Run: true})
}

func (d *Step) phase(state agentv1.RunState) error {
	return d.emit(run.NewEvent(&agentv1.RunStateChanged{State: state}))
}

// fail ends the run with an error.
func (d *Step) fail(err error) error {
	d.Faults = append(d.Faults, err)
	return d.raise(run.ErrorOf(err))
}

// raise ends the run by an error.
func (d *Step) raise(err *agentv1.RunError) error {
	return d.emit(run.NewEvent(&agentv1.ErrorRaised{Error: err}))
}

// hit ends the run by a bound.
func (d *Step) hit(reached *agentv1.LimitReached) error {
	return d.emit(run.NewEvent(&agentv1.LimitHit{Limit: reached, EndsRun: true}))
}

// hitIn ends an agent by a bound of its own; nil is the run by one of its own.
func (d *Step) hitIn(f *run.Frame, reached *agentv1.LimitReached) error {
	if f == nil {
		return d.hit(reached)
	}
	return d.emitIn(f, run.NewEvent(&agentv1.LimitHit{Limit: reached}))
}

// conclude scores a run that has stopped, removes its sandboxes and ends it.
func (d *Step) conclude() (bool, error) {
	s := d.s
	if d.toScore() {
		if s.Scoring == nil {
			return true, d.phase(agentv1.RunState_RUN_STATE_SCORING)
		}
		if s.Scoring.Next < len(s.Spec().GetScorers()) {
			if s.Scoring.Frame.Wait != nil {
				return false, nil // A model call of the scorer is repeated after it.
			}
			return d.judge()
		}
	}
	if left := d.sandboxesLeft(); len(left) > 0 {
		if !s.Spec().GetKeepSandboxes() {
			d.Removing = true
			return false, nil
		}
		for _, environment := range left {
			if err := d.emit(run.NewEvent(&agentv1.SandboxRemoved{Environment: environment, Sandbox: s.Sandboxes[environment].Name, Kept: true})); err != nil {
				return false, err
			}
		}
	}
	finished := &agentv1.RunFinished{
		State: agentv1.RunState_RUN_STATE_SUCCEEDED, Error: s.Error, Limit: s.Limit,
		TotalTime: durationpb.New(d.facts.Now.Sub(s.Created)), WorkingTime: durationpb.New(s.Working),
	}
	switch {
	case d.cancelled():
		finished.State = agentv1.RunState_RUN_STATE_CANCELLED
	case s.Error != nil:
		finished.State = agentv1.RunState_RUN_STATE_FAILED
	}
	return false, d.emit(run.NewEvent(finished))
}

func (d *Step) cancelled() bool {
	return d.s.Cancel != nil && d.s.Cancel.Mode == agentv1.CancelMode_CANCEL_MODE_CANCEL
}

// toScore reports whether the run is to be scored. An error in scoring itself ends it.
func (d *Step) toScore() bool {
	s := d.s
	if len(s.Spec().GetScorers()) == 0 || d.cancelled() {
		return false
	}
	return s.Error == nil || s.Spec().GetScoreOnError()
}
