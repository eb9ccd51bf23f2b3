package turn

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// maxDecisions bounds the decisions of an agent in one step; more are a fault of it. What the calls of a message need is bounded by the message.
const maxDecisions = 10_000

// decide handles mail and then decides until the run has to wait for something.
func (d *driver) decide(all []mail) error {
	d.again = time.Time{}
	// It is the first event of an epoch, so it is there once any is. Of a restart only a run is told whose time is bounded.
	if timed := d.away > 0 && d.s.Limits.Timed(); (d.adopted != "" || timed) && d.s.Epoch < d.head.Epoch {
		changed := &agentv1.OwnerChanged{Owner: d.engine.cfg.Replica, Reason: cmp.Or(d.adopted, restart)}
		if timed {
			changed.Away = durationpb.New(d.away)
		}
		if err := d.emit(event(changed)); err != nil {
			return err
		}
	}
	if missed := d.missed(d.now); missed > 0 && d.s.Limits.Timed() && !d.s.Started.IsZero() && !d.s.Finished {
		if err := d.emit(event(&agentv1.OwnerChanged{Owner: d.engine.cfg.Replica, Reason: outage, Away: durationpb.New(missed)})); err != nil {
			return err
		}
	}
	fault := d.tooLarge
	if fault == nil && d.faults >= maxFaults {
		fault = &agentv1.RunError{Reason: reasonInternal, Message: "the run could not be driven; the server's log has the cause"}
	}
	if fault != nil && !d.s.Stopping() {
		if err := d.raise(fault); err != nil {
			return err
		}
	}
	inbox := false
	for _, m := range all {
		inbox = inbox || m.inbox
		d.arrived = append(d.arrived, m.arrived)
		if err := d.receive(m); err != nil {
			return err
		}
	}
	if inbox {
		if err := d.commands(); err != nil {
			return err
		}
	}
	if err := d.clocks(); err != nil {
		return err
	}
	for d.acts < maxDecisions {
		if more, err := d.next(); err != nil || !more {
			return err
		}
	}
	return fmt.Errorf("turn: %s: the agent of step %d decides without end", d.s.Name, d.s.Step)
}

// next takes one decision. It returns false when the run has to wait.
func (d *driver) next() (more bool, err error) {
	s := d.s
	switch {
	case s.Finished, s.TooNew:
		return false, nil
	case s.Fault != nil:
		return true, d.raise(s.Fault)
	case s.Phase == agentv1.RunState_RUN_STATE_WAITING && s.Judging() && !s.Cutting():
		return d.waited()
	case (s.Stopping() || s.StepsDone) && len(s.Open) > 0:
		return false, nil // a stopping run waits for what is being cancelled, one that is scored for its scorer's effect
	case s.Cancel != nil && !s.Cancel.Acknowledged:
		return true, d.emit(event(&agentv1.CancelAcknowledged{CommandId: s.Cancel.Command}))
	case s.Stopping() || s.StepsDone:
		return d.conclude()
	case s.Phase == agentv1.RunState_RUN_STATE_PENDING:
		if wait := d.engine.noRoom(); wait != nil {
			return false, d.phase(agentv1.RunState_RUN_STATE_WAITING, wait)
		}
		return true, d.phase(agentv1.RunState_RUN_STATE_RUNNING, nil)
	case s.Phase == agentv1.RunState_RUN_STATE_WAITING:
		return d.waited()
	case d.unread:
		if len(s.Open) > 0 {
			return false, nil
		}
		return false, d.phase(agentv1.RunState_RUN_STATE_WAITING, &agentv1.RunWait{
			Reason: WaitVersion, Message: "its inbox holds a command of a later version of the server, which has to go on with it",
		})
	case s.Held:
		if len(s.Open) > 0 {
			return false, nil
		}
		return false, d.phase(agentv1.RunState_RUN_STATE_WAITING, &agentv1.RunWait{Reason: waitHold, Message: "held by an operator"})
	case d.lacksSandboxes():
		return true, d.makeSandboxes()
	case len(s.Open) > 0:
		return false, nil
	case s.Calls != nil:
		return d.calls()
	case s.Scoring != nil:
		return d.judge()
	case s.Machine != nil:
		d.acts++
		return d.act()
	}
	return true, d.emit(event(&agentv1.StepBegan{Index: int32(s.Step + 1), Name: agent.DisplayName(s.Spec().GetSteps()[s.Step+1])}))
}

// Reasons to wait.
const (
	waitCapacity = "capacity"
	waitQuota    = "quota"
	waitEngine   = "engine"
	waitBudget   = "budget"
	waitWorker   = "worker"
	waitInput    = "input"
	waitHold     = "hold"
	waitDecision = "decision"
	waitStore    = "store"
	// WaitVersion is that of a run which a later version of the server has to go on with.
	WaitVersion = "version"
	// WaitFault is that of a run which a fault of the server keeps from every step.
	WaitFault = "fault"
)

// waited ends a wait that is over.
func (d *driver) waited() (bool, error) {
	wait := d.s.Wait
	over := false
	switch wait.GetReason() {
	case waitHold:
		over = !d.s.Held
	case waitDecision: // The command that decides ends it.
	case waitDisk:
		over = d.engine.noRoom() == nil
	case waitInput:
		over = len(d.s.Posted) > 0
	case WaitVersion:
		over = !d.unread
	default:
		over = !d.now.Before(wait.GetRetryAt().AsTime()) || wait.GetSubject() != "" && slices.Contains(d.arrived, wait.GetSubject())
	}
	if !over {
		return false, nil
	}
	return true, d.emit(d.wentOn())
}

// wentOn is the end of a wait.
func (d *driver) wentOn() *agentv1.Event {
	if d.s.Judging() {
		return event(&agentv1.RunStateChanged{State: agentv1.RunState_RUN_STATE_SCORING})
	}
	return event(&agentv1.RunStateChanged{State: agentv1.RunState_RUN_STATE_RUNNING})
}

func (d *driver) phase(state agentv1.RunState, wait *agentv1.RunWait) error {
	if wait != nil {
		wait.Since = timestamppb.New(d.now)
	}
	return d.emit(event(&agentv1.RunStateChanged{State: state, Wait: wait}))
}

// fail ends the run by what went wrong.
func (d *driver) fail(err error) error {
	d.logFault(err)
	return d.raise(runError(err))
}

// raise ends the run by an error.
func (d *driver) raise(err *agentv1.RunError) error {
	return d.emit(event(&agentv1.ErrorRaised{Error: err}))
}

// hit ends the run by a bound.
func (d *driver) hit(reached *agentv1.LimitReached) error {
	return d.emit(event(&agentv1.LimitHit{Limit: reached, EndsRun: true}))
}

// conclude scores a run that has stopped, removes its sandboxes and ends it.
func (d *driver) conclude() (bool, error) {
	s := d.s
	if d.toScore() {
		if s.Scoring == nil {
			return true, d.phase(agentv1.RunState_RUN_STATE_SCORING, nil)
		}
		if s.Scoring.Next < len(s.Spec().GetScorers()) {
			return d.judge()
		}
	}
	if left := d.sandboxesLeft(); len(left) > 0 {
		if !s.Spec().GetKeepSandboxes() {
			d.removing = true
			return false, nil
		}
		for _, environment := range left {
			if err := d.emit(event(&agentv1.SandboxRemoved{Environment: environment, Sandbox: s.Sandboxes[environment].Name, Kept: true})); err != nil {
				return false, err
			}
		}
	}
	finished := &agentv1.RunFinished{
		State: agentv1.RunState_RUN_STATE_SUCCEEDED, Error: s.Error, Limit: s.Limit,
		TotalTime: durationpb.New(d.now.Sub(s.Created)), WorkingTime: durationpb.New(s.Working),
	}
	switch {
	case d.cancelled():
		finished.State = agentv1.RunState_RUN_STATE_CANCELLED
	case s.Error != nil:
		finished.State = agentv1.RunState_RUN_STATE_FAILED
	}
	if len(s.Spec().GetSandboxes()) > 0 {
		d.release = append(d.release, release{parent: s.Parent(), key: s.Name, boxes: true})
	}
	return false, d.emit(event(finished))
}

func (d *driver) cancelled() bool { return d.s.Cancel != nil && d.s.Cancel.Mode == run.CancelPlain }

// toScore reports whether the run is to be scored. An error in scoring itself ends it.
func (d *driver) toScore() bool {
	s := d.s
	if len(s.Spec().GetScorers()) == 0 || d.cancelled() {
		return false
	}
	return s.Error == nil || s.Spec().GetScoreOnError()
}

// clocks looks at the bounds of time.
func (d *driver) clocks() error {
	s := d.s
	if deadline := s.Deadline(); !deadline.IsZero() && !d.now.Before(deadline) {
		if s.Judging() {
			if s.Error == nil {
				return d.raise(&agentv1.RunError{Reason: reasonScoringTimeout, Message: "scoring took longer than half of the time limit"})
			}
			return nil
		}
		reached, _ := s.Limits.TimedOut(s.Elapsed(d.now))
		return d.hit(reached)
	}
	if at := d.overworked(); !at.IsZero() && !d.now.Before(at) {
		reached, _ := s.Limits.Overworked(s.Working + d.now.Sub(d.workingSince()))
		return d.hit(reached)
	}
	return nil
}

// overworked returns when the bound of working time is reached by what is under way. A model call never reaches it: its waiting is known only when it has ended.
func (a *actor) overworked() time.Time {
	s := a.state
	since := a.workingSince()
	if since.IsZero() || s.Stopping() || s.StepsDone || s.Uncounted() {
		return time.Time{}
	}
	reached, left := s.Limits.Overworked(s.Working)
	switch {
	case reached != nil:
		return since
	case left < 0:
		return time.Time{}
	}
	return since.Add(left)
}

// workingSince returns when the oldest open effect that is no model call began; zero while there is none, or a model call.
func (a *actor) workingSince() (since time.Time) {
	for _, i := range a.state.Open {
		switch i.Event.GetKind().(type) {
		case *agentv1.Event_ModelIntent:
			return time.Time{}
		case *agentv1.Event_ToolIntent, *agentv1.Event_ExecIntent, *agentv1.Event_WorkerIntent:
			if since.IsZero() {
				since = i.Since().Add(i.Away)
			}
		}
	}
	return since
}

// lacksSandboxes reports whether a sandbox of the run has not been asked for yet.
func (d *driver) lacksSandboxes() bool { return len(d.sandboxesToMake()) > 0 }

func (d *driver) sandboxesToMake() []string {
	var missing []string
	for environment := range d.s.Spec().GetSandboxes() {
		asked := slices.ContainsFunc(d.s.Open, func(i *run.Intent) bool { return i.Event.GetSandboxIntent().GetEnvironment() == environment })
		if d.s.Sandboxes[environment] == nil && !asked {
			missing = append(missing, environment)
		}
	}
	slices.Sort(missing)
	return missing
}

func (d *driver) makeSandboxes() error {
	for _, environment := range d.sandboxesToMake() {
		if err := d.emit(event(&agentv1.SandboxIntent{Environment: environment, RequestId: d.s.Key(d.s.Seq + 1)})); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) sandboxesLeft() []string {
	var left []string
	for environment, box := range d.s.Sandboxes {
		if !box.Removed {
			left = append(left, environment)
		}
	}
	slices.Sort(left)
	return left
}
