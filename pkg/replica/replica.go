// Package replica says which processes of a service live. A replica is a place where a service runs, with a name that
// stays the same over restarts; a process is one life of it, with a name that no other process ever has. Each replica
// has one row in a [Table]:
//
//	{replica, process, epoch, beat}    Join: a new process, epoch + 1 │ Beat: beat = the store's clock │ Leave: no process
//
// The clock is the store's, so that clocks of machines need not agree. A process that was replaced, has left, or has
// not beaten for longer than the time to live counts as dead, and others may take over what it had claimed.
package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/standstill"
)

// ErrUnknown is returned for a process that has no row: it has left, was replaced, or never joined.
var ErrUnknown = errors.New("replica: the process has left or was replaced")

// Table keeps the rows of replicas. Every change is durable before its method returns nil. Methods may be called
// concurrently.
type Table interface {
	// Join makes process the one of a replica and returns the epoch of that, which is higher than that of all processes
	// before. The process before counts as dead from then on.
	Join(ctx context.Context, replica, process string) (epoch int64, err error)
	// Beat says that a process lives. It fails with [ErrUnknown].
	Beat(ctx context.Context, process string) error
	// Leave says that a process has ended. It leaves others alone.
	Leave(ctx context.Context, process string) error
	// Silence returns how long ago a process joined or beat last. It fails with [ErrUnknown].
	Silence(ctx context.Context, process string) (time.Duration, error)
}

// Defaults of a [Config].
const (
	DefaultTTL   = 5 * time.Second
	DefaultEvery = time.Second
)

// Config makes a [Process].
type Config struct {
	// Table keeps the rows. Required.
	Table Table
	// Replica is the name of the replica, the same after a restart. Required.
	Replica string
	// Process names this process from its start to its end. No other process ever has the name. Required.
	Process string
	// TTL is how long after its last beat a process counts as dead. Zero is [DefaultTTL].
	TTL time.Duration
	// Every is the time between two beats. Zero is [DefaultEvery].
	Every time.Duration
	// Logger gets failures of the table. Nil discards them.
	Logger *slog.Logger
}

// Process is this process as others see it. Its methods may be called concurrently.
type Process struct {
	cfg   Config
	clock standstill.Detector

	mu      sync.Mutex
	patient time.Time // until then no other process counts as dead for its silence
}

// Join makes this process the one of its replica. [Process.Run] beats.
func Join(ctx context.Context, cfg Config) (*Process, error) {
	cfg.TTL, cfg.Every = cmp.Or(cfg.TTL, DefaultTTL), cmp.Or(cfg.Every, DefaultEvery)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if _, err := cfg.Table.Join(ctx, cfg.Replica, cfg.Process); err != nil {
		return nil, fmt.Errorf("replica: join as %s: %w", cfg.Replica, err)
	}
	return &Process{cfg: cfg}, nil
}

// Run beats until ctx ends.
func (p *Process) Run(ctx context.Context) {
	beats := time.NewTicker(p.cfg.Every)
	defer beats.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-beats.C:
		}
		if gap := p.clock.Look(time.Now(), p.cfg.TTL); gap > 0 {
			p.stoodStill()
		}
		err := p.cfg.Table.Beat(ctx, p.cfg.Process)
		if err != nil && !failing && ctx.Err() == nil {
			p.cfg.Logger.ErrorContext(ctx, "cannot say that this process lives; others take over its work", "error", err, "after", p.cfg.TTL)
		}
		failing = err != nil
	}
}

// stoodStill gives other processes time to beat again: they may have stood still with this one.
func (p *Process) stoodStill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.patient = time.Now().Add(p.cfg.TTL)
}

// Leave says that this process has ended, so that others need not wait.
func (p *Process) Leave(ctx context.Context) error { return p.cfg.Table.Leave(ctx, p.cfg.Process) }

// Alive reports whether a process lives, for all that is known.
func (p *Process) Alive(ctx context.Context, process string) (bool, error) {
	silence, err := p.cfg.Table.Silence(ctx, process)
	switch {
	case errors.Is(err, ErrUnknown):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("replica: ask for %s: %w", process, err)
	case silence <= p.cfg.TTL:
		return true, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.patient), nil
}
