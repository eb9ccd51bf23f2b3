package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	"github.com/evalfleet/evalfleet/pkg/failpoint"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/decide"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/effects"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// maxFaults is how often a step that fails for internal reasons is retried before the run fails.
const maxFaults = 3

var reasonInternal = rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_INTERNAL)

// rowEvery is how often the row of an active run is updated, apart from changes that lists must show at once.
const rowEvery = time.Second

// step handles mail: one pass of the effect protocol.
func (a *actor) step(ctx context.Context, all []mail) error {
	if err := fenced(all); err != nil {
		return err
	}
	if a.state == nil {
		if err := a.load(ctx); err != nil {
			return err
		}
	}
	s := a.state
	if s.Finished {
		a.engine.disown(a)
		return nil
	}
	if s.TooNew {
		a.engine.deps.Logger.Warn("the run was written by a later version, which has to go on with it", "run", s.Name)
		a.setBoxes(s)
		a.park(waits.ForVersion(), 0)
		a.state = nil
		return nil
	}
	now := time.Now()
	a.again = time.Time{}
	facts, released, err := a.facts(ctx, all, now)
	if err != nil {
		return err
	}
	d := decide.New(s, a.engine.deps.Scorers, facts)
	err = a.decide(d, now) //nolint:contextcheck // A review may end after the step that asked for it.
	for _, fault := range d.Faults {
		effects.LogInternal(a.engine.deps.Logger, s.Name, fault)
	}
	if err == nil {
		err = a.commit(ctx, d, now)
	}
	if err != nil {
		return err
	}
	a.release(released)
	if len(d.Entries) > 0 {
		a.faults, a.tooLarge = 0, nil
	}
	a.removing = a.removing || d.Removing
	a.left = d.Left
	a.unpark(len(d.Entries) > 0)
	return a.settle(now)
}

// release releases journaled results to their owners. When a run ends, all its results are released together
// ([journal.Deletion.Unreleased]), so most runs release none before.
func (a *actor) release(these []*effects.Release) {
	for _, one := range these {
		switch {
		case one == nil:
		case one.EndsWithRun():
			a.kept = append(a.kept, one)
		default:
			a.engine.caller.Release(one)
		}
	}
	if len(a.kept) >= a.engine.cfg.KeepResults {
		a.engine.caller.Release(a.kept...)
		a.kept = nil
	}
}

// load folds the journal.
func (a *actor) load(ctx context.Context) error {
	a.engine.loads <- struct{}{}
	defer func() { <-a.engine.loads }()
	s, err := run.Fold(a.head.Name, a.engine.deps.Agents, journal.All(ctx, a.engine.deps.Store, a.head.Ref, 0))
	if err != nil {
		return err
	}
	if s.Seq < a.head.Seq {
		return fmt.Errorf("engine: the journal of %s ends at %d; it was at %d before", s.Name, s.Seq, a.head.Seq)
	}
	if s.Epoch > a.head.Epoch {
		return journal.ErrFenced // Another replica has written it since.
	}
	s.OwnerEpoch = a.head.Epoch
	a.head.Seq, a.state = s.Seq, s
	a.mu.Lock()
	defer a.mu.Unlock()
	a.eval = s.Spec().GetAttribution().GetEval()
	return nil
}

// facts returns the inputs of a step's decision, and the results that may be released once the step is in the journal.
func (a *actor) facts(ctx context.Context, all []mail, now time.Time) (f decide.Facts, released []*effects.Release, err error) {
	f = decide.Facts{
		Now: now, Replica: a.engine.Replica(), Epoch: a.head.Epoch, Adopted: a.adopted, Away: a.away, Missed: a.missed(now), Fault: a.tooLarge,
		Lack: a.engine.admissionBlock(),
	}
	if f.Fault == nil && a.faults >= maxFaults {
		f.Fault = &agentv1.RunError{Reason: reasonInternal, Message: "the run could not be driven; the server's log has the cause"}
	}
	look := a.left
	for _, m := range all {
		look = look || m.inbox
		f.Arrived = append(f.Arrived, m.arrived)
		if m.pending == nil || a.pending[m.pending.Key] != m.pending {
			continue // of an abandoned request; its successor asks again
		}
		answer := decide.Answer{Key: m.pending.Key, Outcomes: m.answer.Outcomes, Wait: m.answer.Wait}
		for range answer.Outcomes {
			failpoint.Hit("agentorch/after-result")
		}
		if m.answer.Over {
			delete(a.pending, m.pending.Key)
			if answer.Wait == nil || len(answer.Outcomes) > 0 {
				released = append(released, m.pending.Effect.Release())
			}
		}
		if subject := answer.Wait.GetSubject(); subject != "" && a.engine.arrivals.Since(a.state.Parent(), subject, m.pending.Wanted) {
			answer.Wait.RetryTime = timestamppb.New(now) // It came between the answer and this wait.
		}
		f.Answers = append(f.Answers, answer)
	}
	if look {
		f.Commands, err = a.commands(ctx)
	}
	f.Unread = a.unread
	return f, released, err
}

// commands reads the inbox. Commands that cannot be read, as those of unknown kinds, stay in the inbox, and the run
// waits for a version that knows them. Later commands are still applied, so that the run can be cancelled.
func (a *actor) commands(ctx context.Context) ([]inbox.Command, error) {
	pending, err := a.engine.deps.Store.Pending(ctx, a.head.Ref)
	if err != nil {
		return nil, err
	}
	logged := a.unread
	a.unread = false
	var all []inbox.Command
	for _, p := range pending {
		c, err := inbox.Unpack(p)
		if err == nil {
			err = c.Restore(ctx, a.engine.deps.Blobs)
		}
		if ctx.Err() != nil || rpcerr.Transient(err) {
			return nil, err
		}
		if err != nil {
			if !logged && !a.unread {
				a.engine.deps.Logger.Warn("a command that cannot be read stays in the inbox, as for a later version", "run", a.head.Name, "error", err)
			}
			a.unread = true
			continue
		}
		all = append(all, c)
	}
	return all, nil
}

// decide runs a step up to the point where the run has to wait. An agent whose calls are not reviewed yet does not
// delay the others.
func (a *actor) decide(d *decide.Step, now time.Time) error {
	wanted, err := d.Decide()
	for err == nil && wanted != nil {
		if r := a.review(wanted, now); r != nil {
			wanted, err = d.Reviewed(r.reviews, r.err)
		} else {
			wanted, err = d.Unreviewed()
		}
	}
	return err
}

// commit appends the entries of a step.
func (a *actor) commit(ctx context.Context, d *decide.Step, now time.Time) error {
	if len(d.Entries) == 0 {
		return nil
	}
	s := a.state
	appended := journal.Append{Head: a.head, Entries: d.Entries, Took: d.Took}
	if d.Row || now.Sub(a.rowed) >= rowEvery {
		row, err := s.Row()
		if err != nil {
			return err
		}
		if appended.Row, a.rowed = &row, now; row.Done && row.Parent != "" {
			appended.Tell = []journal.Letter{journal.Ended(row.Parent, a.head.Ref)}
		}
	}
	lapses, _ := a.engine.deps.Replica.Fence()
	if err := a.engine.deps.Store.Append(ctx, appended); err != nil {
		if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE) {
			a.tooLarge = run.ErrorOf(err)
		}
		return err
	}
	a.lapses, a.seen = lapses, a.engine.uncounted.until(now)
	a.head.Seq = s.Seq
	if d.Intents {
		failpoint.Hit("agentorch/after-intent")
	}
	a.logEnd(d.Finished)
	a.traceEnd(d.Finished)
	return nil
}

// logEnd logs the end of a run without an evaluation. An evaluation logs the ends of its own runs.
func (a *actor) logEnd(finished *agentv1.RunFinished) {
	s := a.state
	if finished == nil || s.Spec().GetAttribution().GetEval() != "" {
		return
	}
	log := a.engine.deps.Logger.With("run", s.Name, "state", enum.Word(finished.GetState()), "turns", s.Turns,
		"took", finished.GetTotalTime().AsDuration())
	if err := finished.GetError(); err != nil {
		log.Warn("a run has ended", "reason", err.GetReason())
		return
	}
	log.Info("a run has ended")
}

// maxShownName bounds the name of a run's agents in traces.
const maxShownName = 200

// traceEnd makes the span of a run that has ended.
func (a *actor) traceEnd(finished *agentv1.RunFinished) {
	if finished == nil {
		return
	}
	s := a.state
	var steps []string
	for _, step := range s.Spec().GetSteps() {
		steps = append(steps, agent.DisplayName(step))
	}
	name := headtail.Cut(strings.Join(steps, ", "), maxShownName)
	a.engine.deps.Traces.Ended(s.Name, "invoke_agent "+name, s.Created, s.Ended, strings.ToLower(finished.GetError().GetReason()),
		semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName(name), attribute.String("evalfleet.state", enum.Word(finished.GetState())),
		attribute.String("evalfleet.eval", s.Spec().GetAttribution().GetEval()), attribute.Int("evalfleet.turns", s.Turns),
		semconv.GenAIUsageInputTokens(int(chat.SumTokens(s.Total.GetInputTokens(), s.Total.GetInputTokensCacheRead(), s.Total.GetInputTokensCacheWrite()))),
		semconv.GenAIUsageOutputTokens(int(s.Total.GetOutputTokens())), attribute.Float64("evalfleet.cost_dollars", s.Total.GetTotalCost()))
}

// settle ends a step: it begins effects for open intents, sets the clock, and drops state that is no longer needed in
// memory.
func (a *actor) settle(now time.Time) error {
	s := a.state
	a.setBoxes(s)
	a.await(s.Parent(), s.Subjects(), now)
	if s.Finished {
		a.engine.disown(a)
		a.state = nil
		return nil
	}
	if err := a.reconcile(); err != nil {
		return err
	}
	if wake := a.wake(); !wake.IsZero() {
		a.setClock(wake.Sub(now))
	} else {
		a.stopClock()
	}
	if s.Phase == agentv1.RunState_RUN_STATE_WAITING && len(a.pending) == 0 {
		a.state = nil // it waits for long; the journal keeps it
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resting = a.state == nil
	return nil
}

// wake returns when the run is to be looked at by the clock.
func (a *actor) wake() time.Time {
	wake := decide.Wake(a.state)
	if !a.again.IsZero() && (wake.IsZero() || a.again.Before(wake)) {
		wake = a.again
	}
	return wake
}
