// Package replica tracks which processes of a service are alive. A replica is a place where a service runs, with a name
// that stays the same over restarts; a process is one life of it, with a unique name. Each replica of a service has one
// row in a [Table]:
//
//	{service, name, process, address, epoch, beat}    Join: a new process, epoch + 1 │ Beat: beat = the store's clock │ Leave: no process
//
// The clock is the store's, so that clocks of machines need not agree. A process that was replaced, has left, or has
// not sent a heartbeat for longer than the time to live counts as dead, and others may take over its claims. The dead
// process itself cannot know that, so [Process.Fence] prevents it from starting anything once it could not send a
// heartbeat for that long.
package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/clockjump"
)

// ErrUnknown is returned for a process that has no row: it has left, was replaced, or never joined.
var ErrUnknown = errors.New("replica: the process has left or was replaced")

// Table keeps the rows of replicas. Every change is durable before its method returns nil, and is one statement of the
// store. Its methods are safe for concurrent use.
type Table interface {
	// Join makes m.Process the process of a replica. The previous process counts as dead from then on. The returned
	// row's epoch is higher than that of all earlier processes, and its Silence is the time since the last heartbeat of
	// the previous process; zero if there was none.
	Join(ctx context.Context, m Member) (Row, error)
	// Beat records a heartbeat of a process. It fails with [ErrUnknown].
	Beat(ctx context.Context, process string) error
	// Leave records that a process has ended. It does not affect other processes.
	Leave(ctx context.Context, process string) error
	// List returns the rows of all replicas, by service and name.
	List(ctx context.Context) ([]Row, error)
}

// Member is a replica with the process that it has now.
type Member struct {
	// Service is the service that runs there, such as `agentorch`, or that of a process with several.
	Service string
	// Name is that of the replica, unique in its service and the same after a restart.
	Name string
	// Process names a process from its start to its end. The name is unique. It is empty for a replica whose process
	// has left.
	Process string
	// Address is where others reach the process, host:port.
	Address string
}

// Row is a table's row of a replica.
type Row struct {
	Member

	// Epoch counts the processes of the replica.
	Epoch int64
	// Silence is how long ago the process beat last, by the store's clock.
	Silence time.Duration
}

// Defaults of a [Config].
const (
	DefaultTTL   = 5 * time.Second
	DefaultEvery = time.Second
)

// Config makes a [Process].
type Config struct {
	Member

	// Table keeps the rows. Required.
	Table Table
	// TTL is how long after its last beat a process counts as dead. Zero is [DefaultTTL].
	TTL time.Duration
	// Every is the time between two beats. Zero is [DefaultEvery].
	Every time.Duration
	// Logger gets failures of the table. Nil discards them.
	Logger *slog.Logger
}

// Process is this process as others see it. Its methods are safe for concurrent use.
type Process struct {
	cfg    Config
	joined Row
	clock  clockjump.Detector

	mu      sync.Mutex
	patient time.Time // until then no other process counts as dead for its silence
	beat    time.Time // when the last beat that is in the table began
	lapses  int       // how often the time to live passed between two such beats
}

// Join makes this process the one of its replica. [Process.Run] beats.
func Join(ctx context.Context, cfg Config) (*Process, error) {
	cfg.TTL, cfg.Every = cmp.Or(cfg.TTL, DefaultTTL), cmp.Or(cfg.Every, DefaultEvery)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	began := time.Now()
	row, err := cfg.Table.Join(ctx, cfg.Member)
	if err != nil {
		return nil, fmt.Errorf("replica: join as %s: %w", cfg.Name, err)
	}
	return &Process{cfg: cfg, joined: row, beat: began}, nil
}

// Name is that of the replica; empty of a nil process.
func (p *Process) Name() string {
	if p == nil {
		return ""
	}
	return p.cfg.Name
}

// Epoch distinguishes the process from earlier ones of the replica.
func (p *Process) Epoch() int64 { return p.joined.Epoch }

// Absent is for how long the replica had no process before this one; zero for a new replica.
func (p *Process) Absent() time.Duration { return p.joined.Silence }

// TTL is how long after its last beat a process counts as dead.
func (p *Process) TTL() time.Duration {
	if p == nil {
		return DefaultTTL
	}
	return p.cfg.TTL
}

// Run beats until ctx ends. A caller with a loop of its own may call [Process.Beat] as well.
func (p *Process) Run(ctx context.Context) {
	beats := time.NewTicker(p.cfg.Every)
	defer beats.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-beats.C:
		}
		err := p.Beat(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			p.cfg.Logger.ErrorContext(ctx, "cannot say that this process lives; others take over its work", "error", err, "after", p.cfg.TTL)
		}
		failing = err != nil
	}
}

// Beat sends one heartbeat of this process. It fails with [ErrUnknown] if another process has joined as the same
// replica: this one must end.
func (p *Process) Beat(ctx context.Context) error {
	began := time.Now()
	if p.clock.Look(began, p.cfg.TTL) > 0 { // Others may have stood still with this process, and beat again only now.
		p.mu.Lock()
		p.patient = began.Add(p.cfg.TTL)
		p.mu.Unlock()
	}
	if err := p.cfg.Table.Beat(ctx, p.cfg.Process); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if elapsed(p.beat, began) > p.cfg.TTL {
		p.lapses++
	}
	if began.After(p.beat) {
		p.beat = began
	}
	return nil
}

// Fence reports whether this process may start work that it has claimed: it has sent a heartbeat within its time to
// live. Lapses counts the times when it had not. After each of them others may have this process's earlier claims.
//
//	beat ──▶ open ── TTL without a beat ──▶ shut ── beat ──▶ open, one lapse more
func (p *Process) Fence() (lapses int, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lapses, elapsed(p.beat, time.Now()) <= p.cfg.TTL
}

// elapsed is the longer of the elapsed times by the monotonic clock, which stops while the machine sleeps, and by the
// wall clock, which may be set.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Leave records that this process has ended, so that others need not wait.
func (p *Process) Leave(ctx context.Context) error { return p.cfg.Table.Leave(ctx, p.cfg.Process) }

// Alive reports whether a process lives, for all that is known.
func (p *Process) Alive(ctx context.Context, process string) (bool, error) {
	rows, err := p.cfg.Table.List(ctx)
	if err != nil {
		return false, fmt.Errorf("replica: ask for %s: %w", process, err)
	}
	return slices.ContainsFunc(rows, func(r Row) bool { return r.Process == process && p.lives(r) }), nil
}

// Peer is a replica of the same service.
type Peer struct {
	Row

	// Lives reports whether its process lives, for all that is known.
	Lives bool
}

// Peers returns the replicas of this process's service, itself among them.
func (p *Process) Peers(ctx context.Context) ([]Peer, error) {
	rows, err := p.cfg.Table.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("replica: ask for %s: %w", p.cfg.Service, err)
	}
	var peers []Peer
	for _, row := range rows {
		if row.Service == p.cfg.Service {
			peers = append(peers, Peer{row, p.lives(row)})
		}
	}
	return peers, nil
}

// lives reports whether the process of a row lives.
func (p *Process) lives(r Row) bool {
	if r.Process == "" || r.Silence <= p.cfg.TTL {
		return r.Process != ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.patient)
}
