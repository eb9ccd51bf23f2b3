// Package lifecycle starts parts of a program in order and stops them in reverse.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Patience is how long a stop waits for a part beyond its share of the grace. A part that does not end within it is
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

// Stop stops the started parts in reverse, each within an equal share of grace, and returns all their errors. A part
// that has not ended [Patience] after its share results in an error, and may still run when Stop returns.
func (g *Group) Stop(ctx context.Context, grace time.Duration) error {
	var faults []error
	share := grace / time.Duration(max(1, g.started))
	for ; g.started > 0; g.started-- {
		p := g.parts[g.started-1]
		if p.Stop == nil {
			continue
		}
		if err := p.stop(ctx, share); err != nil {
			faults = append(faults, fmt.Errorf("stop %s: %w", p.Name, err))
		}
	}
	return errors.Join(faults...)
}

func (p Part) stop(ctx context.Context, share time.Duration) error {
	within, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Stop(within) }()
	late := time.NewTimer(share + Patience)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		return fmt.Errorf("has not ended after %v, and is given up", share+Patience)
	}
}
