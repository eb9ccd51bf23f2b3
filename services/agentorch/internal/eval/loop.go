package eval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/failpoint"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// loop is the driver of an active evaluation. One goroutine runs it; other goroutines may call only notify.
type loop struct {
	engine  *Engine
	project string
	head    journal.Head
	state   *State
	// samples and plan are read by prepare; nil before.
	samples *Samples
	plan    *plan
	// early is set if the inbox holds the end of a run that the journal does not assign to a slot yet, as after a crash
	// between the two.
	early bool
	// stopping is set while runs are being cancelled. It holds the event that follows when none is left.
	stopping *stop
	// unread is set while the inbox holds a command of a kind that this version does not know.
	unread bool
	// failed counts the failed samples since this replica drives the evaluation, for the log.
	failed int
	wake   chan struct{}
	// waiting is what the evaluation waits for; nil if it does not wait. Other goroutines may read it.
	waiting atomic.Pointer[agentv1.EvalWait]
}

// stop is how an evaluation ends before its samples are done.
type stop struct {
	change *agentv1.EvalStateChanged
	// told are the runs whose cancel is durable.
	told map[string]struct{}
	// complete is set once all open runs are admitted. No later one follows, since another driver can create none.
	complete bool
}

// command is a command in an evaluation's inbox.
type command struct {
	Type   string  `json:"type"`
	Actor  string  `json:"actor"` // who sent it
	Reason string  `json:"reason,omitempty"`
	Update *Update `json:"update,omitempty"`
	Etag   string  `json:"etag,omitempty"`
}

const (
	commandCancel = "cancel"
	commandUpdate = "update"
)

// retryPause is the pause after an error of a store or a service.
const retryPause = time.Second

// turnStarts and turnEnds bound how many samples a turn of the driver begins and how many finished samples it collects.
// turnTime bounds the duration of each part, turnBytes the size of the collected results. The next turn does the rest,
// after pending commands and errors.
const (
	turnStarts = 16
	turnEnds   = 100
	turnTime   = 100 * time.Millisecond
	turnBytes  = 4 << 20
)

// notify wakes the driver.
func (d *loop) notify() {
	select {
	case d.wake <- struct{}{}:
	default: // It has not looked since the last one.
	}
}

// errNotOwner is the error if another replica owns the journal now.
var errNotOwner = errors.New("another replica owns the evaluation now")

// run drives until the evaluation has ended, ctx ends, or another replica owns the journal. Whatever else fails it
// waits for, without end.
func (d *loop) run(ctx context.Context) error {
	sub := d.engine.deps.Journals.Subscribe(d.head.Name)
	defer sub.Close()
	for {
		wait, err := d.iterate(ctx)
		if errors.Is(err, journal.ErrFenced) {
			if moved, lookErr := d.rebuildState(ctx, err); moved {
				continue
			} else if lookErr != nil {
				err = lookErr
			}
		}
		if d.state.Ended() || errors.Is(err, errNotOwner) || ctx.Err() != nil {
			return err
		}
		var again <-chan time.Time
		switch {
		case err != nil:
			d.engine.deps.Logger.Warn("an evaluation waits and tries again", "eval", d.head.Name, "error", err)
			again = time.After(max(retryPause, rpcerr.RetryAfter(err)))
			wait = waitFor(err)
		case wait != nil, d.stopping != nil:
			again = time.After(retryPause)
		}
		d.wait(wait)
		select {
		case <-sub.C:
		case <-d.wake:
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitFor is the wait that an error means, for people.
func waitFor(err error) *agentv1.RunWait {
	wait := &agentv1.RunWait{Reason: waits.Fault, Message: rpcerr.ToStatus(err).Message()}
	switch {
	case rpcerr.StoreAway(err):
		wait.Reason = waits.Store
	case rpcerr.Code(err) == codes.Unavailable:
		wait.Reason = waits.Service
	}
	return wait
}

// wait records what the evaluation waits for; nil if it does not wait.
func (d *loop) wait(wait *agentv1.RunWait) {
	if wait == nil {
		d.waiting.Store(nil)
		return
	}
	since := timestamppb.Now()
	if before := d.waiting.Load(); before.GetReason() == wait.GetReason() {
		since = before.GetSince()
	}
	d.waiting.Store(&agentv1.EvalWait{Reason: wait.GetReason(), Message: wait.GetMessage(), Since: since, Samples: d.state.Eval.GetProgress().GetPending()})
}

// rebuildState folds the state anew from the journal after a refused append: an earlier append may have become durable
// although it returned an error. It reports whether the journal had more events than known, and fails with
// [errNotOwner] if another replica owns the journal.
func (d *loop) rebuildState(ctx context.Context, refused error) (moved bool, err error) {
	fenced, ok := errors.AsType[*journal.FencedError](refused)
	if !ok {
		return false, refused
	}
	head := fenced.Now
	switch {
	case head.Ref != d.head.Ref || head.Owner != d.engine.deps.Replica || head.Epoch != d.head.Epoch:
		return false, errNotOwner
	case head.Seq <= d.head.Seq:
		return false, nil
	}
	state := &State{}
	if err := d.engine.folds.follow(ctx, head, state); err != nil {
		return false, err
	}
	head.Seq = state.Eval.GetHead()
	d.head, d.state, d.stopping = head, state, nil
	return true, nil
}

// iterate does all work that is possible now. Wait is the reason why it could not do more.
func (d *loop) iterate(ctx context.Context) (wait *agentv1.RunWait, err error) {
	if d.state.TooNew {
		return waits.ForVersion(), nil
	}
	if err := d.prepare(ctx); err != nil {
		if wait, err := d.iterateUnprepared(ctx, err); wait != nil || err != nil {
			return wait, err
		}
	}
	if err := d.collect(ctx); err != nil {
		return nil, d.uncollected(ctx, fmt.Errorf("collect finished samples: %w", err))
	}
	d.stopping = cmp.Or(d.stopping, d.pendingStop()) // Before commands, which come too late.
	if err := d.applyCommands(ctx); err != nil {
		return nil, fmt.Errorf("take commands: %w", err)
	}
	d.stopping = cmp.Or(d.stopping, d.pendingStop())
	if d.stopping == nil && d.unread {
		return waits.ForLaterCommand(), nil
	}
	if d.stopping == nil {
		if wait, err = d.admit(ctx); err != nil {
			return nil, err
		}
		d.stopping = d.tooManyErrors() // Of samples that can have no run.
	}
	if d.stopping != nil {
		return nil, d.stop(ctx)
	}
	if p := d.state.Eval.GetProgress(); p.GetPending()+p.GetRunning() == 0 {
		return nil, d.finish(ctx)
	}
	return wait, nil
}

// uncollected applies commands if the ends of runs cannot be read: a cancel still stops the active runs. It returns the
// error of the turn.
func (d *loop) uncollected(ctx context.Context, cause error) error {
	if errors.Is(cause, journal.ErrFenced) {
		return cause
	}
	d.stopping = cmp.Or(d.stopping, d.pendingStop())
	if err := d.applyCommands(ctx); err != nil {
		if errors.Is(err, journal.ErrFenced) {
			return err
		}
		return cause
	}
	if d.stopping = cmp.Or(d.stopping, d.pendingStop()); d.stopping == nil {
		return cause
	}
	if err := d.cancelRuns(ctx); err != nil {
		return errors.Join(cause, err)
	}
	return cause
}

// prepare reads the samples and resolves the scorers and metrics, unless it has done so.
func (d *loop) prepare(ctx context.Context) error {
	if d.samples != nil && d.plan != nil {
		return nil
	}
	samples, err := d.engine.folds.samplesOf(ctx, d.project, d.state.Dataset)
	if err != nil {
		return err
	}
	plan, err := d.engine.deps.Judges.plan(d.state.Eval.GetSpec())
	if err != nil {
		return err
	}
	d.samples, d.plan = samples, &plan
	return nil
}

// iterateUnprepared applies commands if prepare failed and the evaluation cannot continue. Only the end of the
// evaluation needs neither samples nor scorers; otherwise the evaluation waits.
func (d *loop) iterateUnprepared(ctx context.Context, cause error) (*agentv1.RunWait, error) {
	if err := d.applyCommands(ctx); err != nil {
		return nil, fmt.Errorf("take commands: %w", err)
	}
	if d.stopping = cmp.Or(d.stopping, d.pendingStop()); d.stopping != nil {
		return nil, nil
	}
	wait := waitFor(cause)
	if wait.GetReason() == waits.Fault {
		wait.Reason, wait.Message = waits.Loading, "what it needs cannot be loaded: "+wait.GetMessage()
	}
	if before := d.waiting.Load(); before.GetReason() != wait.GetReason() {
		d.engine.deps.Logger.Error("an evaluation cannot go on; it waits and tries again", "eval", d.head.Name, "error", cause)
	}
	return wait, nil
}

// sample returns the sample of a slot; nil if the samples could not be read.
func (d *loop) sample(slot *Slot) *agentv1.Sample {
	if d.samples == nil {
		return nil
	}
	return d.samples.At(slot.Sample)
}

// collect journals the ends of runs from their letters, as many as a turn has time for. The letter of a run that the
// journal does not assign to a slot yet stays in the inbox.
func (d *loop) collect(ctx context.Context) error {
	begun := time.Now()
	ends, err := d.ended(ctx)
	if err != nil {
		return err
	}
	var (
		events []*agentv1.Event
		took   []string
		size   int
	)
	d.early = false
	for _, end := range ends {
		slot := d.state.ByRun(end.row.Name)
		if slot == nil {
			d.early = true
			continue
		}
		if slot.Finished == nil {
			event, err := d.outcome(ctx, slot, end.row)
			if err != nil {
				return err
			}
			events, size = append(events, event), size+proto.Size(event)
		}
		if took = append(took, end.letter); size > turnBytes || time.Since(begun) > turnTime {
			break
		}
	}
	if len(took) == 0 {
		return nil
	}
	d.notify() // There may be more.
	return d.append(ctx, took, events...)
}

// end is that of a run.
type end struct {
	letter string // the id of its letter in the inbox
	row    journal.Listed
}

// ended reads a page of the ends in the inbox, in the order of arrival.
func (d *loop) ended(ctx context.Context) ([]end, error) {
	pending, err := d.engine.deps.Journals.Pending(ctx, d.head.Ref)
	if err != nil {
		return nil, err
	}
	letters := map[journal.Ref]string{}
	var refs []journal.Ref
	for _, p := range pending {
		if run, is := journal.HasEnded(p); is && len(refs) < turnEnds {
			letters[run], refs = p.ID, append(refs, run)
		}
	}
	if len(refs) == 0 {
		return nil, nil
	}
	rows, err := d.engine.deps.Journals.List(ctx, journal.Query{Refs: refs, Limit: turnEnds, Bytes: turnBytes})
	ends := make([]end, len(rows))
	for i, row := range rows {
		ends[i] = end{letters[row.Ref], row}
	}
	slices.SortFunc(ends, func(a, b end) int {
		return cmp.Compare(slices.Index(refs, a.row.Ref), slices.Index(refs, b.row.Ref))
	})
	return ends, err
}

// applyCommands applies the commands in the inbox. Commands of unknown kinds stay in the inbox.
func (d *loop) applyCommands(ctx context.Context) error {
	pending, err := d.engine.deps.Journals.Pending(ctx, d.head.Ref)
	if err != nil {
		return err
	}
	d.unread = false
	for _, p := range pending {
		var c command
		if err := json.Unmarshal(p.Body, &c); err != nil {
			c = command{}
		}
		_, ofRun := journal.HasEnded(p)
		switch {
		case ofRun: // collect takes it.
		case c.Type == commandUpdate && c.Update != nil:
			err := d.append(ctx, []string{p.ID}, &agentv1.Event{Actor: c.Actor, Kind: &agentv1.Event_EvalUpdated{EvalUpdated: &agentv1.EvalUpdated{
				ChangesJson: c.Update.text(), Reason: c.Reason, Outdated: c.Etag != "" && c.Etag != d.state.Eval.GetEtag(),
			}}})
			if err != nil {
				return err
			}
		case c.Type == commandCancel:
			err := d.append(ctx, []string{p.ID}, &agentv1.Event{Actor: c.Actor, Kind: &agentv1.Event_CommandReceived{CommandReceived: &agentv1.CommandReceived{
				CommandId: p.ID, Type: agentv1.CommandType_COMMAND_TYPE_CANCEL, Reason: c.Reason,
			}}})
			if err != nil {
				return err
			}
		default:
			d.unread = true
		}
	}
	return nil
}

// pendingStop returns how the evaluation ends before all samples are done; nil if it does not. The first cause in the
// journal counts, so that a successor ends the evaluation in the same way.
func (d *loop) pendingStop() *stop {
	if c := d.state.Cancel; c != nil && !d.state.cancelledLate {
		return &stop{change: &agentv1.EvalStateChanged{State: agentv1.EvalState_EVAL_STATE_CANCELLED, Reason: c.GetReason()}}
	}
	return d.tooManyErrors()
}

// tooManyErrors returns how the evaluation ends once errors of samples meet its rule; nil before.
func (d *loop) tooManyErrors() *stop {
	if !d.state.failing() {
		return nil
	}
	return &stop{change: &agentv1.EvalStateChanged{
		State: agentv1.EvalState_EVAL_STATE_FAILED, Reason: d.countErrors(), Error: d.firstError(),
	}}
}

// countErrors returns a text with the number of samples that ended with an error. While the evaluation stops, none of
// them is retried.
func (d *loop) countErrors() string {
	n := 0
	for i := range d.state.Slots {
		if d.state.Slots[i].failed() {
			n++
		}
	}
	return fmt.Sprintf("%d of %d samples ended with an error", n, len(d.state.Slots))
}

func (d *loop) firstError() *agentv1.RunError {
	for i := range d.state.Slots {
		if s := &d.state.Slots[i]; s.failed() {
			e := s.Finished.GetError()
			return &agentv1.RunError{Reason: e.GetReason(), Message: runTitle(d.sample(s), s) + ": " + e.GetMessage()}
		}
	}
	return nil
}

// cancelRuns cancels all active runs concurrently and does not wait for their end: their rows record how they ended.
func (d *loop) cancelRuns(ctx context.Context) error {
	var running []string
	for i := range d.state.Slots {
		slot := &d.state.Slots[i]
		if _, told := d.stopping.told[slot.Run]; slot.Run != "" && slot.Finished == nil && !told {
			running = append(running, slot.Run)
		}
	}
	if len(running) > 0 {
		if err := d.engine.deps.Runs.CancelAll(ctx, running, d.cancelID(), d.stopping.change.GetReason()); err != nil {
			return fmt.Errorf("cancel runs: %w", err)
		}
		if d.stopping.told == nil {
			d.stopping.told = map[string]struct{}{}
		}
		for _, run := range running {
			d.stopping.told[run] = struct{}{}
		}
	}
	return nil
}

// stop cancels the active runs, and journals the end once all have stopped.
func (d *loop) stop(ctx context.Context) error {
	if err := d.cancelRuns(ctx); err != nil {
		return err
	}
	if !d.stopping.complete {
		if err := d.admitStrays(ctx); err != nil {
			return fmt.Errorf("find runs that are not admitted: %w", err)
		}
		d.stopping.complete = true
		if err := d.cancelRuns(ctx); err != nil {
			return err
		}
	}
	if err := d.collect(ctx); err != nil {
		return err
	}
	if err := d.cancelUndriven(ctx); err != nil {
		return err
	}
	if d.state.Eval.GetProgress().GetRunning() > 0 {
		return nil // Their rows wake us.
	}
	if d.stopping.change.GetState() == agentv1.EvalState_EVAL_STATE_FAILED {
		d.stopping.change.Reason = d.countErrors() // Some failed before they could be cancelled.
	}
	return d.append(ctx, nil, &agentv1.Event{Kind: &agentv1.Event_EvalStateChanged{EvalStateChanged: d.stopping.change}})
}

// cancelUndriven counts runs as cancelled that cannot take a step here, such as those of a later version: the cancel
// stays in their inbox.
func (d *loop) cancelUndriven(ctx context.Context) error {
	var events []*agentv1.Event
	for i := range d.state.Slots {
		slot := &d.state.Slots[i]
		if slot.Run == "" || slot.Finished != nil || !d.engine.deps.Runs.Stuck(slot.Run) {
			continue
		}
		events = append(events, &agentv1.Event{Id: slot.Run, Kind: &agentv1.Event_SampleFinished{SampleFinished: &agentv1.SampleFinished{
			Sample: d.sample(slot).GetId(), Epoch: int32(slot.Epoch), Run: slot.Run, State: agentv1.RunState_RUN_STATE_CANCELLED,
		}}})
	}
	if len(events) == 0 {
		return nil
	}
	return d.append(ctx, nil, events...)
}

// cancelID is the id of the cancel of the evaluation's runs, so that a successor does not send a second cancel. The
// evaluation cancels each run at most once.
func (d *loop) cancelID() string { return "eval/" + resource.LastID(d.head.Name) }

// admit starts runs for samples while there is room, as many as a turn may begin. It returns the reason why no new work
// may start.
func (d *loop) admit(ctx context.Context) (*agentv1.RunWait, error) {
	spec := d.state.Eval.GetSpec()
	room := d.engine.bound(spec) - int(d.state.Eval.GetProgress().GetRunning())
	begun, tried := time.Now(), 0
	for slot := range d.state.waiting() {
		if room <= 0 {
			return nil, nil
		}
		if wait := d.engine.hold(); wait != nil {
			return wait, nil
		}
		if tried == turnStarts || time.Since(begun) > turnTime {
			d.notify()
			return nil, nil
		}
		tried++
		err := d.start(ctx, spec, slot)
		switch {
		case isPermanent(err):
			if err := d.append(ctx, nil, d.refusal(slot, err)); err != nil {
				return nil, err
			}
			if d.tooManyErrors() != nil {
				return nil, nil
			}
		case err != nil:
			return nil, fmt.Errorf("%s: %w", runTitle(d.sample(slot), slot), err)
		default:
			room--
		}
	}
	return nil, nil
}

// isPermanent reports whether a run could not be created because of its specification, and not because of a transient
// failure of a store or service.
func isPermanent(err error) bool {
	switch rpcerr.Code(err) { //nolint:exhaustive // All other codes pass, or may.
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.Unimplemented:
		return true
	}
	return false
}

// refusal is the event that records why a slot can have no run.
func (d *loop) refusal(slot *Slot, err error) *agentv1.Event {
	return &agentv1.Event{Kind: &agentv1.Event_SampleFinished{SampleFinished: &agentv1.SampleFinished{
		Sample: d.sample(slot).GetId(), Epoch: int32(slot.Epoch), Position: int32(slot.Sample), ModelIndex: int32(slot.Model),
		State: agentv1.RunState_RUN_STATE_FAILED, Error: &agentv1.RunError{Reason: rpcerr.ReasonName(rpcerr.Reason(err)), Message: err.Error()},
	}}}
}

// start creates the run of a slot and journals the assignment. After a crash between the two, the same run is created
// again, by its key.
func (d *loop) start(ctx context.Context, spec *agentv1.EvalSpec, slot *Slot) error {
	sample := d.sample(slot)
	run, err := runSpec(d.head.Name, spec, sample, slot)
	if err != nil {
		return err
	}
	name, err := d.engine.deps.Runs.CreateSample(ctx, d.project, run, d.attempt(slot), d.head)
	if err != nil {
		return err
	}
	failpoint.Hit("agentorch/after-sample-run")
	err = d.append(ctx, nil, d.admission(slot, name))
	if d.early {
		d.notify() // It may have ended.
	}
	return err
}

// attempt is the key of the run that a slot gets next.
func (d *loop) attempt(slot *Slot) string {
	return fmt.Sprintf("%s/%s/%d", resource.LastID(d.head.Name), slotID(d.state.Eval.GetSpec(), slot), slot.Attempts+1)
}

// finish computes the results and ends the evaluation.
func (d *loop) finish(ctx context.Context) error {
	end := &agentv1.EvalStateChanged{State: agentv1.EvalState_EVAL_STATE_SUCCEEDED}
	if float64(d.state.failures) >= d.state.tolerated() { // Only with continue_on_fail: else it would have stopped.
		end = &agentv1.EvalStateChanged{State: agentv1.EvalState_EVAL_STATE_FAILED, Reason: d.countErrors(), Error: d.firstError()}
	}
	results, unscored, err := d.plan.results(ctx, d.state, d.samples)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		end = &agentv1.EvalStateChanged{
			State: agentv1.EvalState_EVAL_STATE_FAILED, Reason: "the results cannot be computed",
			Error: &agentv1.RunError{Reason: rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), Message: err.Error()},
		}
		return d.append(ctx, nil, &agentv1.Event{Kind: &agentv1.Event_EvalStateChanged{EvalStateChanged: end}})
	}
	if unscored != "" && end.GetState() == agentv1.EvalState_EVAL_STATE_SUCCEEDED {
		end = d.nothingScored(unscored)
	}
	err = d.append(ctx, nil,
		&agentv1.Event{Kind: &agentv1.Event_ResultsComputed{ResultsComputed: &agentv1.ResultsComputed{Results: results}}},
		&agentv1.Event{Kind: &agentv1.Event_EvalStateChanged{EvalStateChanged: end}})
	if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE) {
		return d.append(ctx, nil, &agentv1.Event{Kind: &agentv1.Event_EvalStateChanged{EvalStateChanged: &agentv1.EvalStateChanged{
			State: agentv1.EvalState_EVAL_STATE_FAILED, Reason: "the results are too large",
			Error: &agentv1.RunError{Reason: rpcerr.ReasonName(rpcerr.Reason(err)), Message: err.Error()},
		}}})
	}
	return err
}

// nothingScored is the end of an evaluation that has no score for a model. Such an evaluation must not pass for a
// successful one.
func (d *loop) nothingScored(model string) *agentv1.EvalStateChanged {
	fault := rpcerr.NothingScored(model, "no sample of %s was scored; %s", model, d.countErrors())
	if first := d.firstError(); first != nil {
		fault.Message += ", the first: " + first.GetMessage()
	}
	reason := "nothing was scored"
	if len(d.state.Eval.GetSpec().GetModels()) > 1 {
		reason += " of " + model
	}
	return &agentv1.EvalStateChanged{
		State: agentv1.EvalState_EVAL_STATE_FAILED, Reason: reason,
		Error: &agentv1.RunError{Reason: rpcerr.ReasonName(fault.Reason), Message: fault.Message},
	}
}

// append adds events to the journal and folds them. The row that is written with them already includes them, so they
// are folded first, and undone if they do not become durable.
func (d *loop) append(ctx context.Context, took []string, events ...*agentv1.Event) error {
	next := d.head
	entries := make([]journal.Entry, 0, len(events))
	for _, e := range events {
		next.Seq++
		entries = append(entries, journal.Entry{Event: newEvent(next.Seq, e)})
	}
	undo := d.state.attempt(events)
	row := rowOf(d.state)
	if err := d.engine.deps.Journals.Append(ctx, journal.Append{Head: d.head, Entries: entries, Row: &row, Took: took}); err != nil {
		undo()
		return err
	}
	d.head = next
	d.log(events)
	return nil
}
