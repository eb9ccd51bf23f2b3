// Package lifecycle starts parts of a program in order and stops them in reverse.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Patience is how long a stop waits for a part beyond its time. A part that does not end within it is
// abandoned, so that it cannot block the end of the process.
const Patience = 5 * time.Second

// Part is something with a life. Start returns when the part works; Stop returns when it has ended. Either may be nil.
type Part struct {
	// Name is for errors.
	Name string
	// Start starts the part; its background work must outlive ctx, which bounds the start alone.
	Start func(ctx context.Context) error
	// Stop ends it; ctx bounds how long it may take.
	Stop func(ctx context.Context) error
	// Patient reports whether Stop waits for work that is worth it: it then has all that is left of the grace.
	Patient bool
}

// Group is a list of parts. It is not for concurrent use.
type Group struct {
	parts   []Part
	started int
}

// Add puts parts at the end.
func (g *Group) Add(parts ...Part) { g.parts = append(g.parts, parts...) }

// Start starts the parts in order. If one fails, the started ones are stopped, and its error is returned.
func (g *Group) Start(ctx context.Context) error {
	for ; g.started < len(g.parts); g.started++ {
		p := g.parts[g.started]
		if p.Start == nil {
			continue
		}
		if err := p.Start(ctx); err != nil {
			return errors.Join(fmt.Errorf("start %s: %w", p.Name, err), g.Stop(context.WithoutCancel(ctx), 10*time.Second))
		}
	}
	return nil
}

// Stop stops the started parts in reverse, and returns all their errors. A patient part has what is left of grace, any
// other an equal share of it, which few need, so that the whole may take twice grace. A part that has not ended
// [Patience] after its time results in an error, and may still run when Stop returns.
func (g *Group) Stop(ctx context.Context, grace time.Duration) error {
	var faults []error
	begun, share := time.Now(), grace/time.Duration(max(1, g.started))
	for ; g.started > 0; g.started-- {
		p := g.parts[g.started-1]
		if p.Stop == nil {
			continue
		}
		within := share
		if p.Patient {
			within = max(share, grace-time.Since(begun))
		}
		if err := p.stop(ctx, within); err != nil {
			faults = append(faults, fmt.Errorf("stop %s: %w", p.Name, err))
		}
	}
	return errors.Join(faults...)
}

func (p Part) stop(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Stop(ctx) }()
	late := time.NewTimer(within + Patience)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		return fmt.Errorf("has not ended after %v, and is given up", within+Patience)
	}
}
