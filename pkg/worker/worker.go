// Package worker hosts workers: programs in any language that serve tools, scorers and functions of agents over
// WorkerService.
//
// A worker opens one stream, declares its offers, and receives calls. Workers with the same offer within a project are
// a pool. A service that uses a kind of offer has a [Host] for it and calls [Host.Do] inside an effect whose key is the
// call's:
//
//	         slot free             result               durable
//	waiting ───────────▶ given ───────────▶ answered ──────────▶ accepted: the worker forgets
//	   ▲      retry        │ worker lost
//	   └───────────────────┤                   offered again
//	                       │ fail, ask     ┌──────────────────▶ given
//	                       └──▶ orphaned ──┤
//	                                       └─ not in time ────▶ unknown
//
// The host stores nothing durable. The effect around Do stores claims and results. After a crash its successor makes
// the same call, and a reconnecting worker lists the calls that it still has, so that each result counts once whichever
// side crashed. The kinds define the bytes of a payload, and the services decide who may call whom.
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
	// Reconnect is the time in which a lost worker may reconnect with a call that must not be dispatched twice, before
	// the call's outcome counts as unknown. Default 30s.
	Reconnect time.Duration `yaml:"reconnect"`
	// Absence is how long calls wait, as durable waits of their runs, after the last worker that serves them has
	// disconnected. Default 10m.
	Absence time.Duration `yaml:"absence"`
	// Silence is how long a worker may send nothing, not even a reply to a ping, before it counts as lost. Default 30s.
	Silence time.Duration `yaml:"silence"`
}

// Validate refuses negative times.
func (c *Config) Validate() error {
	if c.Reconnect < 0 || c.Absence < 0 || c.Silence < 0 {
		return errors.New("reconnect, absence and silence must not be negative; 0 is the default")
	}
	return nil
}

// SetDefaults sets zero fields to their defaults.
func (c *Config) SetDefaults() {
	c.Reconnect = cmp.Or(c.Reconnect, 30*time.Second)
	c.Absence = cmp.Or(c.Absence, 10*time.Minute)
	c.Silence = cmp.Or(c.Silence, 30*time.Second)
}

// Bounds of the data that a host holds for workers and callers.
const (
	maxSessions   = 10_000
	maxOffers     = 1_000
	maxInFlight   = 1_000
	maxUnfinished = 10_000
	maxWaiting    = 10_000   // calls of one pool
	maxParked     = 64 << 20 // bytes of results that no caller has requested yet
	maxStrays     = 1_000    // frames in a row about calls that the worker does not have
	maxLosses     = 5        // workers that one call may outlive
)

// patience is how long a call waits inside the host for an absent worker, before its caller is notified.
const patience = time.Second

// Kind is a kind of thing that a host has workers serve.
type Kind struct {
	// Name is the kind in offers, such as `tool`.
	Name string
	// Check validates an offer; its error names a valid form. Nil accepts every well-formed offer.
	Check func(*workerv1.Offer) error
}

// Deps are the dependencies of a host.
type Deps struct {
	// Kinds are the kinds of offers that the host serves.
	Kinds []Kind
	// Ledger is where the callers of Do store claims and results. It shows which calls of a reconnecting worker are
	// still wanted.
	Ledger effect.Ledger
	// Logger logs. It receives only the beginning and the end of unusable payloads.
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

// Close ends all connections and returns when all its goroutines have ended. Workers keep their calls: Do fails with
// [effect.ErrDraining], which leaves the claim to a successor, and the workers offer the calls to it.
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

// Find returns the offer of a project's workers with a name, or nil. An offer is known as long as calls would wait for
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

// List returns the offers of a kind of a project's workers, by name. The caller must not modify them.
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

// Served notifies of the offers of workers that take calls, as workers connect and disconnect.
func (h *Host) Served() *lastvalue.Map[Offered, struct{}] { return &h.served }

// Accept acknowledges a durable result to the worker that sent it. The caller calls it once the effect around Do has
// stored the result.
func (h *Host) Accept(key effect.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		if s.project == key.Project {
			s.accept(key.ID)
		}
	}
}

// wanted reports whether a caller may still request a call that a worker has.
func (h *Host) wanted(ctx context.Context, key effect.Key) bool {
	record, err := h.deps.Ledger.Lookup(ctx, key)
	switch {
	case errors.Is(err, effect.ErrUnknown), errors.Is(err, effect.ErrInvalidKey):
		return false
	case err != nil:
		return true // it can be acknowledged later
	}
	return record.State == effect.Running || record.State == effect.Dropped || record.State == effect.Yielded
}
