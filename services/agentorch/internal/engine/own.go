package engine

import (
	"context"
	"fmt"
	"slices"
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

// claimPage is how many journals are claimed at a time.
const claimPage = 500

// beatWithTimeout is beat, which shows a store that does not answer in the time of a beat: it may take long to fail.
func (e *Engine) beatWithTimeout(ctx context.Context) error {
	shown := make(chan *agentv1.RunWait, 1)
	late := time.AfterFunc(e.cfg.Beat, func() {
		message := fmt.Sprintf("the store has not answered for %v", e.cfg.Beat)
		wait := waits.ForStore(message, time.Now())
		e.silent.CompareAndSwap(nil, wait)
		shown <- wait
	})
	err := e.deps.Replica.Beat(ctx)
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

// resume takes over the journals that this replica owned before. It raises all epochs at once, which fences off an
// earlier process of the replica. It resumes the runs in pages while calls are served; active runs come before waiting
// runs.
func (e *Engine) resume(ctx context.Context) error {
	newest, err := e.deps.Store.Resume(ctx, e.Replica())
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	e.working.Go(func() {
		for _, waiting := range []bool{false, true} {
			e.rearm(newest, waiting)
			e.leases.renewNow() // Leases that expired in the meantime end soon.
		}
		e.resumed.Store(true)
	})
	return nil
}

// rearm resumes the runs of this replica up to the newest, page by page. It retries while the store is away.
func (e *Engine) rearm(newest journal.Ref, waiting bool) {
	q := journal.Query{Owner: e.Replica(), Waiting: &waiting, Before: newest + 1, Limit: claimPage}
	for failing := false; ; {
		page, err := e.deps.Store.List(e.life, q)
		if err == nil {
			err = e.armAll(e.life, page, e.restarted)
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

// claim takes over journals without a living owner: those of dead replicas, and those that were left to any replica. It
// takes at most this replica's even share of all open journals, so that other replicas get theirs.
func (e *Engine) claim(ctx context.Context) error {
	// First what there is, and then who lives: a replica that had joined when a journal was made has its share of it.
	load, err := e.deps.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	all, err := e.deps.Replica.Peers(ctx)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	living, silent := []string{e.Replica()}, map[string]time.Duration{}
	for _, peer := range all {
		silent[peer.Name] = peer.Silence
		if peer.Lives && peer.Name != e.Replica() {
			living = append(living, peer.Name)
		}
	}
	e.living.Store(int64(len(living)))
	open, free := 0, 0
	for owner, n := range load {
		if open += n; !slices.Contains(living, owner) {
			free += n
		}
	}
	share := (open + len(living) - 1) / len(living)
	for room := min(free, share-load[e.Replica()]); room > 0; {
		limit := min(room, claimPage)
		page, err := e.deps.Store.Claim(ctx, journal.Claim{Replica: e.Replica(), Living: living, Limit: limit})
		if err == nil {
			err = e.armAll(ctx, page, func(l journal.Listed) change { return claimed(l, silent) })
		}
		if err != nil {
			return fmt.Errorf("engine: claim: %w", err)
		}
		if room -= len(page); len(page) < limit {
			return nil
		}
	}
	return nil
}

// change is how a journal came to this replica, or to this process of it.
type change struct {
	// reason is why the former owner lost the journal; 0 if there was none.
	reason agentv1.OwnerChangeReason
	// away is how long no replica drove it.
	away time.Duration
}

// claimed is that of a journal that this replica claimed. Silent is how long each replica had not beaten.
func claimed(l journal.Listed, silent map[string]time.Duration) change {
	if l.Before == "" {
		return change{} // It was made a moment ago.
	}
	return change{decide.Takeover, silent[l.Before]}
}

// restarted is that of a journal which this replica had already.
func (e *Engine) restarted(journal.Listed) change {
	if e.resumed.Load() {
		return change{} // It was lost to this process itself.
	}
	return change{away: e.deps.Replica.Absent()}
}

// armAll resumes one page of journals that this replica owns.
func (e *Engine) armAll(ctx context.Context, page []journal.Listed, how func(journal.Listed) change) error {
	parked := false
	for _, l := range page {
		switch {
		case l.Kind == journal.KindRun:
			parked = parked || l.Waiting
			e.arm(l, how(l))
		case e.deps.AdoptEval != nil:
			e.deps.AdoptEval(l)
		}
	}
	if !parked {
		return nil
	}
	// Mail is called after all journals have their actors, so that either this look or the poster's wake-up finds a
	// command.
	boxes, err := e.deps.Store.Mail(ctx, e.Replica())
	for _, box := range boxes {
		e.Wake(box.Name)
	}
	return err
}

// collect looks for commands that other replicas posted: a poster wakes only an owner in its own process. A journal
// whose commands stay, since a later version has to apply them, is woken at growing intervals, until a newer command
// comes.
func (e *Engine) collect(ctx context.Context) error {
	boxes, err := e.deps.Store.Mail(ctx, e.Replica())
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	before := e.mailed
	e.mailed = make(map[string]mailed, len(boxes))
	for _, box := range boxes {
		seen := before[box.Name]
		if seen.newest != box.Newest {
			seen = mailed{newest: box.Newest}
		}
		seen.beats++
		e.mailed[box.Name] = seen
		switch {
		case seen.beats&(seen.beats-1) != 0: // Only the powers of two.
		case strings.Contains(box.Name, "/runs/"):
			e.Wake(box.Name)
		case e.deps.WakeEval != nil:
			e.deps.WakeEval(box.Name)
		}
	}
	return nil
}

// mailed is the result of the last beat's look at an inbox.
type mailed struct {
	newest int64 // the newest command
	beats  int   // for how many beats in a row that was the newest
}

// arm resumes a run that changed hands: at once or, if it waits, when its time comes or a command arrives. A waiting
// run's journal is not read until then. The journal records a change of the replica, and a time in which no replica
// drove the run, but not a mere restart.
func (e *Engine) arm(l journal.Listed, how change) {
	a := &actor{head: l.Head, adopted: how.reason, eval: l.Parent, away: how.away}
	boxes, subjects, err := parked(l.View)
	if err != nil {
		e.deps.Logger.Error("the row of a run cannot be read; its journal is read instead", "run", l.Name, "error", err)
		l.Waiting, a.unlisted = false, true
	}
	if a.boxes = boxes; l.Waiting {
		a.resting = true
	}
	switch {
	case !e.own(a):
		return // It was active when it was listed first, and waits now.
	case !l.Waiting:
		a.post(mail{inbox: true})
		return
	}
	project, _, _ := strings.Cut(l.Name, "/runs/")
	a.await(project, subjects, time.Time{})
	switch {
	case l.Wake.IsZero():
	case a.away > e.deps.Replica.TTL():
		a.post(mail{inbox: true}) // Its time may end later than its row says.
	default:
		a.setClock(time.Until(l.Wake))
	}
}

// clockJumped handles a time in which this process did not run, because its machine slept or the process was stopped.
func (e *Engine) clockJumped(gap time.Duration) {
	e.deps.Logger.Warn("this process stood still, or the clock was set", "for", gap)
	e.leases.renewNow()
	e.uncounted.noteClockJump()
}

// worked ends a round of beats that started at began. A slow answer of the store does not count as a standstill. Of the
// time since then only the time that the machine slept counts, which the monotonic clock excludes.
func (e *Engine) worked(began time.Time) {
	now := time.Now()
	e.clock.Look(now, e.deps.Replica.TTL())
	if asleep := now.Round(0).Sub(began.Round(0)) - now.Sub(began); asleep > e.deps.Replica.TTL() {
		e.clockJumped(asleep)
	}
}

// parked decodes a run's view: the sandboxes whose leases are renewed, and the subjects that the run waits for.
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
