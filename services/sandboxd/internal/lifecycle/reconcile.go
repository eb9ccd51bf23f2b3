package lifecycle

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// How often and how patiently the reconciler works.
const (
	reconcileEvery = 10 * time.Second
	// settle is the delay before a process ends leases that expired while it could not receive renewals (it is new, it
	// stood still, or its store was unreachable), so that their holders can renew them. Holders renew every two minutes
	// (engine.Config.RenewLeases). A lease that was granted since then has no such delay.
	settle = 3 * time.Minute
	// stoodStill is the longest interval between two looks at the clock while the process runs.
	stoodStill = time.Minute
	// abandoned is how long a sandbox may stay in creation while no process makes it; its caller may retry and
	// continue.
	abandoned = 10 * time.Minute
	// keepRecords is how long records of ended sandboxes are kept.
	keepRecords = 24 * time.Hour
)

// Run compares records and boxes until ctx ends: it ends leases, removes boxes without a record, and finds boxes that
// died.
func (s *Sandboxes) Run(ctx context.Context) error {
	s.background.Go(func() { s.effects.Sweep(ctx) })
	s.Reconcile(ctx)
	s.sweep(ctx)
	ticker, probes := time.NewTicker(reconcileEvery), time.NewTicker(driver.ProbeAge)
	defer ticker.Stop()
	defer probes.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			s.Reconcile(ctx)
		case <-probes.C:
			s.sweep(ctx)
		}
	}
}

// sweep removes the boxes of processes that were killed while they measured a driver.
func (s *Sandboxes) sweep(ctx context.Context) {
	for name, d := range s.drivers {
		if err := driver.Sweep(ctx, d); err != nil && ctx.Err() == nil {
			s.log.Error("cannot remove the boxes that a measurement left", "driver", name, "error", err)
		}
	}
}

// Reconcile compares once. A failure is logged and retried the next time.
func (s *Sandboxes) Reconcile(ctx context.Context) {
	s.checkClock()
	for name, d := range s.drivers {
		asked := time.Now()
		boxes, err := d.List(ctx, s.owner())
		s.checkClock()
		if err != nil {
			s.log.Error("cannot list the boxes of a driver", "driver", name, "error", err)
			continue
		}
		s.compare(ctx, name, d, boxes, asked)
	}
	for _, e := range s.entries() {
		s.checkClock()
		s.look(ctx, e)
	}
	now := time.Now()
	if err := s.store.Forget(ctx, now.Add(-keepRecords)); err != nil && ctx.Err() == nil {
		s.log.Error("cannot forget old records", "error", err)
	}
}

// checkClock detects that the process stood still, with its machine or alone: leases then begin to settle again.
func (s *Sandboxes) checkClock() {
	now := time.Now()
	gap := s.clock.Look(now, stoodStill)
	if gap == 0 {
		return
	}
	s.log.Warn("this process stood still; leases that ran out meanwhile may be renewed first", "for", gap, "settle", settle)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settling = now
}

// settled reports whether all holders of leases had time to renew them since the process began, stood still, or could
// not write.
func (s *Sandboxes) settled(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.settling) > settle
}

// grantedSince reports whether this process has granted the lease of an entry since then, so that no renewal of it can
// have been missed.
func (s *Sandboxes) grantedSince(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.granted.Load() >= s.settling.UnixNano()
}

func (s *Sandboxes) entries() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.live))
}

// compare removes a driver's boxes that have no record and finds records whose box is gone. A record is written before
// its box is made, so a box that was listed and has none is an orphan. A list takes a while: a sandbox that was not
// ready yet when the driver was asked may be on it as it was before, or be missing, and is judged by the next one.
func (s *Sandboxes) compare(ctx context.Context, name string, d driver.Driver, boxes []driver.Observed, asked time.Time) {
	alive, ended := map[string]bool{}, map[string]string{}
	for _, box := range boxes {
		alive[box.ID], ended[box.ID] = box.Alive, box.Ended
		s.mu.Lock()
		_, known := s.live[box.ID]
		s.mu.Unlock()
		if known || driver.IsProbe(box.ID) {
			continue
		}
		s.log.Info("removing a box without a record", "driver", name, "box", box.ID)
		if err := d.Destroy(ctx, box.ID); err != nil {
			s.log.Error("cannot remove a box without a record", "driver", name, "box", box.ID, "error", err)
		}
	}
	for _, e := range s.entries() {
		e.mu.Lock()
		b := e.box
		e.mu.Unlock()
		if b.Spec.GetDriver() == name && b.State == Ready && !alive[b.ID] && b.Changed.Before(asked) {
			s.lose(ctx, e, cmp.Or(ended[b.ID], "its box is gone"))
		}
	}
}

// look ends a sandbox whose time is over, and continues the work that an earlier process began.
func (s *Sandboxes) look(ctx context.Context, e *entry) {
	e.mu.Lock()
	b, making := e.box, e.making
	e.mu.Unlock()
	now := time.Now()
	switch b.State {
	case Deleting:
		s.remove(ctx, e, b.Reason)
	case Creating:
		if !making && now.Sub(b.Changed) > abandoned && s.settled(now) {
			s.remove(ctx, e, "its making was abandoned")
		}
	case Ready, Paused:
		switch {
		case now.After(b.Deadline):
			s.remove(ctx, e, "its lifetime is over")
		case now.After(e.leaseEnd(b)) && (s.settled(now) || s.grantedSince(e)):
			s.remove(ctx, e, "its lease expired")
		}
	case Deleted, Lost, Failed:
	}
}
