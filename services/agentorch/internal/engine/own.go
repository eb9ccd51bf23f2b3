package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/decide"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// adoptPage is how many runs are taken over at a time.
const adoptPage = 500

// patientBeat is beat, which shows a store that does not answer in the time of a beat: it may take long to fail.
func (e *Engine) patientBeat(ctx context.Context) error {
	shown := make(chan *agentv1.RunWait, 1)
	late := time.AfterFunc(e.cfg.Beat, func() {
		message := fmt.Sprintf("the store has not answered for %v", e.cfg.Beat)
		wait := waits.ForStore(message, time.Now())
		e.silent.CompareAndSwap(nil, wait)
		shown <- wait
	})
	err := e.beat(ctx)
	if late.Stop() {
		return err
	}
	switch wait := <-shown; {
	case rpcerr.StoreAway(err): // The reason is known now.
		e.silent.CompareAndSwap(wait, waits.ForStore(err.Error(), wait.GetSince().AsTime()))
	case err != nil: // The store has answered.
		e.silent.CompareAndSwap(wait, nil)
	}
	return err
}

// beat says that the replica lives.
func (e *Engine) beat(ctx context.Context) error {
	began := time.Now()
	if err := e.deps.Store.Beat(ctx, e.cfg.Replica, began); err != nil {
		return err
	}
	e.fence.beaten(began, e.cfg.TTL)
	return nil
}

// lookBack notes when a process of this replica was there before.
func (e *Engine) lookBack(ctx context.Context) error {
	last, err := e.deps.Store.LastBeat(ctx, e.cfg.Replica)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	e.before = last
	return nil
}

// resume takes over what this replica owned before: its epochs at once, so that an earlier process of it is fenced off,
// and its runs in shares, beside the calls that are answered meanwhile. Runs at work come before those that wait.
func (e *Engine) resume(ctx context.Context) error {
	newest, err := e.deps.Store.Resume(ctx, e.cfg.Replica)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if !e.before.IsZero() {
		e.down = time.Since(e.before)
	}
	e.working.Go(func() {
		for _, waiting := range []bool{false, true} {
			e.rearm(newest, waiting)
			e.leases.hurry() // Those that ran out meanwhile end soon.
		}
		e.resumed.Store(true)
	})
	return nil
}

// rearm goes on with the runs of this replica up to the newest, page by page, however long the store is away.
func (e *Engine) rearm(newest journal.Ref, waiting bool) {
	q := journal.Query{Owner: e.cfg.Replica, Waiting: &waiting, Before: newest + 1, Limit: adoptPage}
	for failing := false; ; {
		page, err := e.deps.Store.List(e.life, q)
		if err == nil {
			err = e.armAll(e.life, page, decide.Restart)
		}
		switch {
		case err == nil && len(page) == 0:
			return
		case err == nil:
			failing = false
			q.Before = page[len(page)-1].Ref
		case retry.Sleep(e.life, e.cfg.Beat) != nil:
			return
		case !failing: // One line for the first of many failures.
			failing = true
			e.deps.Logger.Error("cannot go on with runs of before; it is tried again", "error", err)
		}
	}
}

// adopt takes over the runs of dead replicas.
func (e *Engine) adopt(ctx context.Context) error {
	a := journal.Adoption{Replica: e.cfg.Replica, DeadSince: time.Now().Add(-e.cfg.TTL), Limit: adoptPage}
	for {
		page, err := e.deps.Store.Adopt(ctx, a)
		if err == nil {
			err = e.armAll(ctx, page, decide.Takeover)
		}
		if err != nil {
			return fmt.Errorf("engine: adopt: %w", err)
		}
		if len(page) < adoptPage {
			return nil
		}
		a.After = page[len(page)-1].Ref
	}
}

// armAll goes on with a page of journals that this replica owns now.
func (e *Engine) armAll(ctx context.Context, page []journal.Listed, reason string) error {
	parked := false
	for _, l := range page {
		switch {
		case l.Kind == journal.KindRun:
			parked = parked || l.Waiting
			e.arm(l, reason)
		case e.deps.AdoptEval != nil:
			e.deps.AdoptEval(l, reason)
		}
	}
	if !parked {
		return nil
	}
	// Asked after all have their actors, so that a command is seen either here or by who posts it.
	names, err := e.deps.Store.Mail(ctx, e.cfg.Replica)
	for _, name := range names {
		e.Wake(name)
	}
	return err
}

// collect looks for commands that were posted by other replicas: who posts one wakes the owner in its own process
// alone. A journal whose commands stay, since a later version has to take them, is woken ever more rarely.
func (e *Engine) collect(ctx context.Context) error {
	names, err := e.deps.Store.Mail(ctx, e.cfg.Replica)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	before := e.mailed
	e.mailed = make(map[string]int, len(names))
	for _, name := range names {
		n := before[name] + 1
		e.mailed[name] = n
		switch {
		case n&(n-1) != 0: // Only the powers of two.
		case strings.Contains(name, "/runs/"):
			e.Wake(name)
		case e.deps.WakeEval != nil:
			e.deps.WakeEval(name)
		}
	}
	return nil
}

// arm goes on with a run that changed hands: at once, or, where it waits, when its time comes or a command does. A run
// that waits is not read for that. The journal of a run tells of another replica and of a time in which none drove it,
// and not of a restart alone. Reason is restart or takeover.
func (e *Engine) arm(l journal.Listed, reason string) {
	if reason == decide.Restart {
		reason = ""
	}
	a := &actor{head: l.Head, adopted: reason, eval: l.Parent, away: e.awayOf(l, reason)}
	boxes, subjects, err := parked(l.View)
	if err != nil {
		e.deps.Logger.Error("the row of a run cannot be read; its journal is read instead", "run", l.Name, "error", err)
		l.Waiting = false
	}
	if a.boxes = boxes; l.Waiting {
		a.resting = true
	}
	switch {
	case !e.own(a):
		return // It was at work when it was listed first, and waits now.
	case !l.Waiting:
		a.post(mail{inbox: true})
		return
	}
	project, _, _ := strings.Cut(l.Name, "/runs/")
	a.await(project, subjects, time.Time{})
	switch {
	case l.Wake.IsZero():
	case a.away > e.cfg.TTL:
		a.post(mail{inbox: true}) // Its time may be over later than its row says.
	default:
		a.setClock(time.Until(l.Wake))
	}
}

// awayOf is how long no replica drove a run that changes hands, or whose replica starts again.
func (e *Engine) awayOf(l journal.Listed, reason string) time.Duration {
	away := e.down
	if e.resumed.Load() {
		away = 0 // It was lost to this process itself.
	}
	if reason != "" {
		away = 0
		if !l.Beaten.IsZero() {
			away = time.Since(l.Beaten)
		}
	}
	return max(away, 0)
}

// stoodStill deals with a time in which this process did nothing, since its machine slept or it was stopped.
func (e *Engine) stoodStill(gap time.Duration) {
	e.deps.Logger.Warn("this process stood still, or the clock was set", "for", gap)
	e.leases.hurry()
	e.uncounted.stood()
	e.patience = time.Now().Add(e.cfg.TTL) // Others stood still as well, with the machine, and beat again only now.
}

// worked ends a round of beats that began at a time. A store that takes long to answer is no standstill; of the time
// since only what the machine slept counts, which the monotonic clock does not.
func (e *Engine) worked(began time.Time) {
	now := time.Now()
	e.clock.Look(now, e.cfg.TTL)
	if asleep := now.Round(0).Sub(began.Round(0)) - now.Sub(began); asleep > e.cfg.TTL {
		e.stoodStill(asleep)
	}
}

// parked reads from a run's view the sandboxes whose leases go on, and what it waits for where that has a name.
func parked(view []byte) (boxes, subjects []string, err error) {
	var r agentv1.Run
	if err := proto.Unmarshal(view, &r); err != nil {
		return nil, nil, err
	}
	for _, name := range r.GetSandboxes() {
		boxes = append(boxes, name)
	}
	return boxes, run.Subjects(r.GetWaits()), nil
}
