package lifecycle

import (
	"context"
	"fmt"
)

// Delete kills what runs in a sandbox and removes it. It waits for the end, which comes also when ctx ends before.
// Deleting one that is deleted gives it again.
func (s *Sandboxes) Delete(ctx context.Context, project, id string) (*Sandbox, error) {
	b, err := s.Get(ctx, project, id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	e := s.live[id]
	if e == nil && !b.State.Over() {
		s.mu.Unlock()
		return nil, elsewhere(b)
	}
	if e == nil && b.State != Deleted {
		e = &entry{id: id, box: b} // lost or failed: its record goes the same way
		s.live[id] = e
	}
	s.mu.Unlock()
	if e == nil {
		return b, nil
	}
	select {
	case <-s.remove(ctx, e, "deleted"):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.Get(ctx, project, id)
}

// remove begins the removal of a sandbox, unless it has begun, and returns a channel that is closed when the removal is
// over or has failed for now.
func (s *Sandboxes) remove(ctx context.Context, e *entry, reason string) <-chan struct{} {
	e.mu.Lock()
	if e.removing != nil {
		defer e.mu.Unlock()
		return e.removing
	}
	over := make(chan struct{})
	if e.box.State == Deleted {
		e.mu.Unlock()
		close(over)
		return over
	}
	e.removing = over
	e.mu.Unlock()
	s.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
		defer cancel()
		err := s.removeNow(ctx, e, reason)
		if err != nil {
			s.log.Error("cannot remove a sandbox; trying again later", "sandbox", e.snapshot().Name(), "error", err)
		}
		e.mu.Lock()
		e.removing = nil
		e.mu.Unlock()
		close(over)
	})
	return over
}

func (s *Sandboxes) removeNow(ctx context.Context, e *entry, reason string) error {
	if _, err := s.move(ctx, e, Delete, func(b *Sandbox) { b.Reason = reason }); err != nil {
		return err
	}
	b := e.snapshot()
	if d, ok := s.drivers[b.Spec.GetDriver()]; ok {
		if err := d.Destroy(ctx, b.ID); err != nil {
			return err
		}
	} else {
		return fmt.Errorf("the driver %s is not configured", b.Spec.GetDriver())
	}
	if _, err := s.move(ctx, e, Removed, nil); err != nil {
		return err
	}
	s.forget(e)
	return nil
}

// lose records that a sandbox is lost and removes what is left of it.
func (s *Sandboxes) lose(ctx context.Context, e *entry, why string) {
	moved, err := s.move(ctx, e, Lose, func(b *Sandbox) { b.Reason = why })
	if err != nil {
		s.log.Error("cannot write that a sandbox is lost", "sandbox", e.snapshot().Name(), "error", err)
	}
	if !moved {
		return
	}
	b := e.snapshot()
	s.log.Warn("a sandbox is lost", "sandbox", b.Name(), "reason", why)
	s.forget(e)
	s.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
		defer cancel()
		if err := s.drivers[b.Spec.GetDriver()].Destroy(ctx, b.ID); err != nil {
			s.log.Error("cannot clear away a lost sandbox", "sandbox", b.Name(), "error", err)
		}
	})
}
