// Package worker hosts workers: programs in any language that serve tools, scorers and functions of agents over
// WorkerService.
//
// A worker opens one stream, says what it serves, and is given calls. Workers that offer the same within a project are
// a pool. The service that needs a kind of thing has a [Host] for it and asks with [Host.Do], inside an effect whose
// key is the call's:
//
//	         slot free             result               durable
//	waiting ───────────▶ given ───────────▶ answered ──────────▶ accepted: the worker forgets
//	   ▲      retry        │ worker lost
//	   └───────────────────┤                   offered again
//	                       │ fail, ask     ┌──────────────────▶ given
//	                       └──▶ orphaned ──┤
//	                                       └─ not in time ────▶ unknown
//
// The host keeps nothing that must last. Claims and results are kept by the effect around Do; after a crash its
// successor asks again, and a worker that comes back offers the calls that it still has. So each result counts once,
// whoever crashed. Which bytes a payload holds is for the kinds to know, and who may call whom for the services.
package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/effect"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Config sets how long things may take. Zero values are the defaults.
type Config struct {
	// Reconnect is how long a lost worker has to come back with a call that must not be given out twice, before the
	// call's outcome counts as unknown. Default 30s.
	Reconnect time.Duration `yaml:"reconnect"`
	// Absence is how long calls wait, as durable waits of their runs, once the last worker that serves them has left.
	// Default 10m.
	Absence time.Duration `yaml:"absence"`
	// Silence is how long a worker may say nothing, not even answer a ping, before it counts as lost. Default 30s.
	Silence time.Duration `yaml:"silence"`
}

// Validate refuses negative times.
func (c *Config) Validate() error {
	if c.Reconnect < 0 || c.Absence < 0 || c.Silence < 0 {
		return errors.New("reconnect, absence and silence must not be negative; 0 is the default")
	}
	return nil
}

// SetDefaults fills in what is zero.
func (c *Config) SetDefaults() {
	c.Reconnect = cmp.Or(c.Reconnect, 30*time.Second)
	c.Absence = cmp.Or(c.Absence, 10*time.Minute)
	c.Silence = cmp.Or(c.Silence, 30*time.Second)
}

// Bounds of what a host holds for workers and callers.
const (
	maxSessions   = 10_000
	maxOffers     = 1_000
	maxInFlight   = 1_000
	maxUnfinished = 10_000
	maxWaiting    = 10_000   // calls of one pool
	maxParked     = 64 << 20 // bytes of results that nobody has asked for yet
	maxStrays     = 1_000    // frames in a row about calls that the worker does not have
	maxLosses     = 5        // workers that one call may outlive
)

// patience is how long a call waits inside the host for a worker that is away, before its caller hears of it.
const patience = time.Second

// Kind is a kind of thing that a host has workers serve.
type Kind struct {
	// Name is what offers say, such as `tool`.
	Name string
	// Check refuses an offer; its error says what would do. Nil takes every offer that is well formed.
	Check func(*workerv1.Offer) error
}

// Deps is what a host works with.
type Deps struct {
	// Kinds are what it serves.
	Kinds []Kind
	// Ledger is where the callers of Do keep claims and results. It tells which calls of a returning worker are still
	// wanted.
	Ledger effect.Ledger
	// Logger logs. Of payloads it sees the edges of those that are of no use.
	Logger *slog.Logger
}

// Host takes workers in and gives them calls. Its methods are safe for concurrent use.
type Host struct {
	workerv1.UnimplementedWorkerServiceServer

	cfg   Config
	deps  Deps
	kinds map[string]Kind
	began time.Time
	work  sync.WaitGroup // readers and writers of streams

	mu       sync.Mutex
	closed   bool
	sessions map[*session]struct{}
	pools    map[Offered]*pool
	calls    map[effect.Key]*call
	losses   map[effect.Key]int
	parked   int // bytes
	served   lastvalue.Map[Offered, struct{}]
}

// New makes a host. Close ends it.
func New(cfg Config, deps Deps) *Host {
	cfg.SetDefaults()
	h := &Host{
		cfg: cfg, deps: deps, kinds: map[string]Kind{}, began: time.Now(),
		sessions: map[*session]struct{}{}, pools: map[Offered]*pool{}, calls: map[effect.Key]*call{}, losses: map[effect.Key]int{},
	}
	for _, kind := range deps.Kinds {
		h.kinds[kind.Name] = kind
	}
	return h
}

// Register offers WorkerService at a server.
func (h *Host) Register(registrar grpc.ServiceRegistrar) {
	workerv1.RegisterWorkerServiceServer(registrar, h)
}

// Close ends all connections and returns when nothing of them runs. Calls that workers have stay theirs: Do fails with
// [effect.ErrDraining], which leaves the claim to a successor, and the workers offer them there.
func (h *Host) Close() {
	h.mu.Lock()
	h.closed = true
	for s := range h.sessions {
		s.end(stopping())
	}
	for _, c := range h.calls {
		switch {
		case c.everGiven:
			c.settle(Answer{}, effect.ErrDraining)
		default:
			c.settle(Answer{}, effect.NotStarted(stopping()))
		}
	}
	h.mu.Unlock()
	h.work.Wait()
}

func stopping() error {
	return rpcerr.ServiceUnavailable("WorkerService", time.Second, "the server is stopping; connect again")
}

// Find returns what workers of a project offer under a name, or nil. An offer is known as long as calls would wait for
// it.
func (h *Host) Find(project, kind, name string) *workerv1.Offer {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pools[Offered{project, kind, name}]
	if p == nil || p.forgotten(h.cfg.Absence) {
		return nil
	}
	return p.offer
}

// List returns what workers of a project offer of a kind, by name. The offers are not to be changed.
func (h *Host) List(project, kind string) []*workerv1.Offer {
	h.mu.Lock()
	defer h.mu.Unlock()
	var offers []*workerv1.Offer
	for of, p := range h.pools {
		if of.Project == project && of.Kind == kind && !p.forgotten(h.cfg.Absence) {
			offers = append(offers, p.offer)
		}
	}
	slices.SortFunc(offers, func(a, b *workerv1.Offer) int { return strings.Compare(a.GetName(), b.GetName()) })
	return offers
}

// Served tells what workers that take calls serve, as they come and go.
func (h *Host) Served() *lastvalue.Map[Offered, struct{}] { return &h.served }

// Accept tells whoever answered a call that its result is durable. It is called once the effect around Do has kept the
// result.
func (h *Host) Accept(key effect.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		if s.project == key.Project {
			s.accept(key.ID)
		}
	}
}

// wanted reports whether a call that a worker still has may be asked for.
func (h *Host) wanted(ctx context.Context, key effect.Key) bool {
	record, err := h.deps.Ledger.Lookup(ctx, key)
	switch {
	case errors.Is(err, effect.ErrUnknown), errors.Is(err, effect.ErrInvalidKey):
		return false
	case err != nil:
		return true // it can be told later
	}
	return record.State == effect.Running || record.State == effect.Dropped || record.State == effect.Yielded
}
