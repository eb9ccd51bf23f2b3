package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/effects"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

const (
	// firstTry and lastTry bound the pauses between attempts to drive a run. Attempts never stop. When the store
	// answers a beat again, all pauses end at once.
	firstTry = 200 * time.Millisecond
	lastTry  = time.Minute
)

// park records why the run is not driven now, a reason that its journal does not hold. The actor stays, and with it the
// leases of the run's sandboxes. The run is retried after the pause; 0 means never.
func (a *actor) park(wait *agentv1.RunWait, pause time.Duration) {
	now := time.Now()
	wait.Since = timestamppb.New(now)
	if pause > 0 {
		wait.RetryTime = timestamppb.New(now.Add(pause))
	}
	a.mu.Lock()
	if a.parked.GetReason() == wait.GetReason() {
		wait.Since = a.parked.GetSince()
	}
	a.parked, a.stepped = wait, false
	a.mu.Unlock()
	if wait.GetReason() == waits.Store {
		a.engine.hold.Store(wait)
	}
	if pause > 0 {
		a.setClock(pause)
	} else {
		a.stopClock()
	}
}

// unpark records that a step succeeded. A step without an append proves nothing about the store; then the next beat
// decides.
func (a *actor) unpark(appended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stepped = true; appended || a.parked.GetReason() != waits.Store {
		a.parked = nil
		a.backoff.Reset()
	}
}

// storeAnswers records that the store answered a beat, and reports whether the run still waits for it.
func (a *actor) storeAnswers() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parked.GetReason() == waits.Store && a.stepped {
		a.parked = nil
		a.backoff.Reset()
	}
	return a.parked.GetReason() == waits.Store
}

// parkedFor returns why the run is not driven; nil if it is driven, or if its journal records the wait.
func (a *actor) parkedFor() *agentv1.RunWait {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.parked != nil:
		return a.parked
	case a.queued != nil:
		return a.queued
	case a.resting:
		return nil
	}
	return a.engine.silent.Load() // Its effects may have ended, and their owners cannot write it either.
}

// recover handles a failed step. The state in memory may be ahead of the journal or behind it, so recover drops it; the
// next step folds the journal again.
func (a *actor) recover(ctx context.Context, err error) {
	a.state, a.removing = nil, false
	for _, p := range a.pending {
		p.Abandon()
	}
	a.pending = map[string]*effects.Pending{}
	a.setQueued(nil)
	if errors.Is(err, journal.ErrFenced) {
		mine, lookErr := a.engine.owns(ctx, a.head, err)
		switch {
		case lookErr != nil:
			err = lookErr
		case !mine:
			a.engine.deps.Logger.Info("another replica owns the run now", "run", a.head.Name)
			a.engine.disown(a)
			return
		default:
			if err = a.raise(ctx, err); err == nil {
				a.post(mail{inbox: true})
				return
			}
		}
	}
	a.mu.Lock()
	pause := a.backoff.Next()
	a.mu.Unlock()
	log := a.engine.deps.Logger.With("run", a.head.Name, "error", err, "again_in", pause)
	_, superseded := errors.AsType[*supersededError](err)
	switch {
	case superseded:
		log.Error("an owner of effects has an epoch of the run that none is above; the run waits")
		a.park(waits.ForFault(time.Now()), pause)
	case errors.Is(err, journal.ErrFenced):
		log.Info("an append is in the journal although it was refused; the run goes on from there")
		a.setClock(pause)
	case rpcerr.StoreAway(err):
		log.Warn("the store is away; the run waits for it")
		a.park(waits.ForStore(err.Error(), time.Now()), pause)
	default:
		if a.faults++; a.faults <= 2*maxFaults {
			log.Error("a step failed; it is tried again from the journal")
			a.setClock(pause)
			return
		}
		log.Error("the run cannot be driven, and not be ended either; it waits")
		a.park(waits.ForFault(time.Now()), pause)
	}
}

// owns reports whether this replica still owns a journal at head's epoch, after an append or an owner of effects was
// refused. Refused is that error.
func (e *Engine) owns(ctx context.Context, head journal.Head, refused error) (bool, error) {
	var now journal.Head
	var err error
	if fenced, ok := errors.AsType[*journal.FencedError](refused); ok {
		now = fenced.Now
	} else if now, err = e.deps.Store.Open(ctx, head.Name); errors.Is(err, journal.ErrNotFound) {
		return false, nil
	}
	return err == nil && now.Ref == head.Ref && now.Owner == e.Replica() && now.Epoch == head.Epoch, err
}

// noteBeat records the result of a beat. When the store answers again after an outage, all runs that wait for it resume
// at once.
func (e *Engine) noteBeat(err error) {
	switch {
	case rpcerr.StoreAway(err):
		wait := waits.ForStore(err.Error(), time.Now())
		e.silent.CompareAndSwap(nil, wait)
		e.hold.CompareAndSwap(nil, wait)
		return
	case err != nil:
		return
	}
	waiting, back := 0, e.silent.Swap(nil) != nil
	for _, a := range e.all() {
		if !a.storeAnswers() {
			continue
		}
		waiting++
		if back {
			a.post(mail{inbox: true})
		}
	}
	if waiting == 0 {
		e.hold.Store(nil)
	}
}

// Hold returns why no new work may start now: the store is away, or resources are short. It is nil if work may start.
func (e *Engine) Hold() *agentv1.RunWait {
	if wait := e.hold.Load(); wait != nil {
		return wait
	}
	return waits.ForRoom(e.admissionBlock())
}

func (e *Engine) all() []*actor {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.actors))
}

// Waiting returns the wait of a run that its journal does not record; nil if there is none, and for runs of other
// replicas.
func (e *Engine) Waiting(name string) *agentv1.RunWait {
	e.mu.Lock()
	a := e.actors[name]
	e.mu.Unlock()
	if a == nil {
		return nil
	}
	return proto.CloneOf(a.parkedFor())
}

// parkedOf returns the waits of an evaluation's runs that their journals do not record.
func (e *Engine) parkedOf(eval string) []*agentv1.EvalWait {
	waits := map[agentv1.WaitReason]*agentv1.EvalWait{}
	for _, a := range e.all() {
		wait := a.parkedFor()
		if wait == nil || a.evalName() != eval {
			continue
		}
		known := waits[wait.GetReason()]
		if known == nil {
			known = &agentv1.EvalWait{Reason: wait.GetReason(), Message: wait.GetMessage(), Since: wait.GetSince()}
			waits[wait.GetReason()] = known
		}
		if known.Samples++; wait.GetSince().AsTime().Before(known.GetSince().AsTime()) {
			known.Since = wait.GetSince()
		}
	}
	var all []*agentv1.EvalWait
	for _, reason := range slices.Sorted(maps.Keys(waits)) {
		all = append(all, waits[reason])
	}
	return all
}

// reown takes over journals that the index assigns to this replica but that are not driven here: they were created or
// adopted while the store's answer was lost. A journal must look so at two beats in a row, since a run that is being
// created, or has just ended, looks the same for a moment.
func (e *Engine) reown(ctx context.Context) error {
	if !e.resumed.Load() {
		return nil
	}
	owned, err := e.deps.Store.Owned(ctx, e.Replica())
	if err != nil {
		return fmt.Errorf("engine: journals of this replica: %w", err)
	}
	held := map[journal.Ref]struct{}{}
	for _, a := range e.all() {
		held[a.head.Ref] = struct{}{}
	}
	if e.deps.EvalRefs != nil {
		for _, ref := range e.deps.EvalRefs() {
			held[ref] = struct{}{}
		}
	}
	before := e.undriven
	e.undriven = map[journal.Ref]struct{}{}
	var lost []journal.Ref
	for _, ref := range owned {
		if _, ok := held[ref]; ok {
			continue
		}
		if _, again := before[ref]; again {
			lost = append(lost, ref)
		} else {
			e.undriven[ref] = struct{}{}
		}
	}
	if len(lost) == 0 {
		return nil
	}
	e.deps.Logger.Warn("journals of this replica had nothing that drives them; they are taken up again", "journals", len(lost))
	for page := range slices.Chunk(lost, claimPage) {
		rows, err := e.deps.Store.List(ctx, journal.Query{Owner: e.Replica(), Refs: page, Limit: claimPage})
		if err == nil {
			rows, err = e.retake(ctx, rows)
		}
		if err == nil {
			err = e.armAll(ctx, rows, e.restarted)
		}
		if err != nil {
			return fmt.Errorf("engine: take up journals again: %w", err)
		}
	}
	return nil
}

// retake raises the epochs of journals of this replica, so that no earlier process of it can write them. It skips
// journals that changed hands.
func (e *Engine) retake(ctx context.Context, rows []journal.Listed) (taken []journal.Listed, err error) {
	for _, row := range rows {
		head, err := e.deps.Store.Take(ctx, row.Head, e.Replica(), 0)
		switch {
		case errors.Is(err, journal.ErrFenced):
			continue
		case err != nil:
			return nil, err
		}
		row.Head = head
		taken = append(taken, row)
	}
	return taken, nil
}
