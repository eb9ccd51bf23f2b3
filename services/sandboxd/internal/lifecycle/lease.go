package lifecycle

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Renew extends the leases of sandboxes of a project to lease from now (zero: each sandbox's own duration). It returns
// the ids of the sandboxes that no longer exist, and the earliest end among the others.
func (s *Sandboxes) Renew(ctx context.Context, project string, ids []string, lease time.Duration) (missing []string, earliest time.Time, err error) {
	if lease < 0 || lease > maxLease {
		return nil, earliest, rpcerr.InvalidField("lease", "must not be below zero nor above %s", maxLease)
	}
	var (
		writing errgroup.Group
		ends    = make([]time.Time, len(ids))
	)
	for i, id := range ids {
		s.mu.Lock()
		e := s.live[id]
		s.mu.Unlock()
		if e == nil || !e.renewable(project) {
			missing = append(missing, id)
			continue
		}
		// Side by side, so that they share one sync of the disk.
		writing.Go(func() (err error) {
			ends[i], err = s.renew(ctx, e, lease)
			return err
		})
	}
	if err := writing.Wait(); err != nil {
		return nil, earliest, err
	}
	for _, end := range ends {
		if !end.IsZero() && (earliest.IsZero() || end.Before(earliest)) {
			earliest = end
		}
	}
	return missing, earliest, nil
}

func (e *entry) renewable(project string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.box.Project == project && (e.box.State == Ready || e.box.State == Creating || e.box.State == Paused)
}

func (s *Sandboxes) renew(ctx context.Context, e *entry, lease time.Duration) (time.Time, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.box.clone()
	if lease == 0 {
		lease = b.Lease
	}
	now := time.Now()
	b.LeaseEnd = now.Add(lease)
	b.Revision++
	if err := s.put(ctx, e, b); err != nil {
		return time.Time{}, fmt.Errorf("write the lease of %s: %w", b.Name(), err)
	}
	e.granted.Store(now.UnixNano())
	return b.LeaseEnd, nil
}
