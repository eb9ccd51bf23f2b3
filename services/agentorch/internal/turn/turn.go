// Package turn drives runs: it asks a run's state what comes next, journals it, and has the owners of the effects do it.
//
// # The effect protocol
//
//	driver                          journal                     owner (modelgw, toolexec, sandboxd)
//	  │ decide: events …, intent{key} ─▶ append, one fsync
//	  │ reconcile: every open intent has a flight
//	  │    flight ─────── call with the key ──────────────────────▶ claim · do · keep the result
//	  │    flight ◀────── result ─────────────────────────────────
//	  │ outcome, what follows, next intent ─▶ append, one fsync
//	  │ release(key), later and in batches ───────────────────────▶ forget the result
//
// An effect is never started by the decision that wants it. A decision only journals an intent; after each append the driver looks at all open intents and starts
// a [flight] for each that has none. After a crash the successor folds the journal and does the very same: it calls the owners with the same keys and the same
// content, and they attach it to what is running or give it what is done. So the way back from a crash is the only way there is.
//
// # Who runs when
//
// Each run that this replica owns has an actor with a mailbox. Mail (an outcome, a clock, a command) starts a short-lived goroutine, the driver, which handles all mail
// that is there in one step and one append, and ends when there is no more. A run that waits has no goroutine, and one that waits for long has no state in memory
// either.
//
//	       mail                 ┌────────────────────── step ───────────────────────┐
//	idle ───────▶ driving ──▶   │ load · receive · decide … · append · reconcile    │ ──▶ idle, parked (state dropped) or finished (actor dropped)
//	                            └────────────────────────────────────────────────────┘
package turn

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/note"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

// Config sets how runs are driven. The zero value is the intended one.
type Config struct {
	// Replica is the name under which this process owns runs. It should be the same after a restart. Empty is `local`.
	Replica string
	// MaxGenerates bounds the open model calls per account; the rest wait as rows. Zero is 512.
	MaxGenerates int
	// Beat is how often the replica says that it lives, and looks for runs of those that do not. Zero is 1s.
	Beat time.Duration
	// TTL is how long after its last beat a replica counts as dead. Zero is 5s.
	TTL time.Duration
	// RenewLeases is how often the leases of the runs' sandboxes are renewed. Zero is 2 min.
	RenewLeases time.Duration
	// MaxLoads bounds how many journals are folded at once. Zero is 16.
	MaxLoads int
}

func (c Config) withDefaults() Config {
	if c.Replica == "" {
		c.Replica = "local"
	}
	if c.MaxGenerates <= 0 {
		c.MaxGenerates = 512
	}
	if c.Beat <= 0 {
		c.Beat = time.Second
	}
	if c.TTL <= 0 {
		c.TTL = 5 * time.Second
	}
	if c.RenewLeases <= 0 {
		c.RenewLeases = 2 * time.Minute
	}
	if c.MaxLoads <= 0 {
		c.MaxLoads = 16
	}
	return c
}

// Deps is what the engine works with.
type Deps struct {
	Store     journal.Store
	Models    modelv1.ModelServiceClient
	Tools     toolv1.ToolServiceClient
	Sandboxes sandboxv1.SandboxServiceClient
	Agents    run.Agents
	Scorers   *score.Registry
	// Workers asks workers for what is no tool; nil where no run names one.
	Workers Workers
	// Away tells that nobody answers at a service now: modelgw, toolexec or sandboxd. Nil says that all are there.
	Away func(service string) bool
	// Notes is where the engine tells what is known of open effects; nil where nobody watches.
	Notes  *note.Board
	Logger *slog.Logger
	// AdoptEval is told of every eval that this replica takes over; reason is `restart` or `takeover`. Nil ignores them.
	AdoptEval func(l journal.Listed, reason string)
}

// Engine drives the runs that this replica owns. Its methods may be called concurrently.
type Engine struct {
	cfg  Config
	deps Deps
	gate gate

	absences absences
	released *releaser
	hearing  hearing
	arrivals arrivals
	loads    chan struct{}
	ready    chan struct{}

	// flights ends with the engine; calls that are then open go on with their owners.
	flights context.Context //nolint:containedctx // the life of what the engine starts, not of a call
	end     context.CancelFunc
	working sync.WaitGroup

	mu     sync.Mutex
	actors map[string]*actor
	closed bool
}

// New makes an engine. It does nothing until Run.
func New(cfg Config, deps Deps) *Engine {
	cfg = cfg.withDefaults()
	if deps.Notes == nil {
		deps.Notes = &note.Board{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		cfg: cfg, deps: deps, flights: ctx, end: cancel,
		loads: make(chan struct{}, cfg.MaxLoads), ready: make(chan struct{}), actors: map[string]*actor{}, arrivals: newArrivals(),
	}
	e.gate.limit = cfg.MaxGenerates
	e.released = newReleaser(deps)
	return e
}

// Replica returns the name under which this process owns runs.
func (e *Engine) Replica() string { return e.cfg.Replica }

// Run takes over the runs that this replica owned before, and then owns, drives and adopts until ctx ends. It returns when nothing of it runs any more; runs are left as
// they are, for this replica or another to go on with.
func (e *Engine) Run(ctx context.Context) error {
	defer e.shutDown() //nolint:contextcheck // It ends what outlives ctx.
	if err := e.beat(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	if err := e.adopt(ctx, true); err != nil {
		return ignoreEnd(ctx, err)
	}
	close(e.ready)
	e.listen()
	beats, leases := time.NewTicker(e.cfg.Beat), time.NewTicker(e.cfg.RenewLeases)
	defer beats.Stop()
	defer leases.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-leases.C:
			e.working.Go(func() { e.renewLeases(e.flights) })
		case <-beats.C:
			e.absences.look(e.deps.Away, time.Now())
			err := errors.Join(e.beat(ctx), e.adopt(ctx, false))
			if err != nil && ctx.Err() == nil {
				e.deps.Logger.Error("cannot beat or adopt", "error", err)
			}
			e.working.Go(func() { e.released.flush(e.flights) })
		}
	}
}

// shutDown lets steps end their append, ends the waiting for effects, and hands the runs over.
func (e *Engine) shutDown() {
	e.mu.Lock()
	e.closed = true
	actors := slices.Collect(maps.Values(e.actors))
	e.mu.Unlock()
	for _, a := range actors {
		a.stopClock()
	}
	e.end()
	e.working.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.TTL)
	defer cancel()
	e.released.flush(ctx)
	if err := e.deps.Store.Beat(ctx, e.cfg.Replica, time.Time{}); err != nil {
		e.deps.Logger.Warn("cannot hand the runs over; another replica takes them when this one counts as dead", "error", err)
	}
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Ready is closed once the engine has taken over what this replica owned before. No run should be created before that.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Drive begins to drive a run that this replica has just created.
func (e *Engine) Drive(head journal.Head) { e.own(head, "", true) }

// Wake looks at a run's inbox, if this replica owns it.
func (e *Engine) Wake(name string) {
	e.mu.Lock()
	a := e.actors[name]
	e.mu.Unlock()
	if a != nil {
		a.post(mail{inbox: true})
	}
}

// Drives reports whether the engine goes on with a run.
func (e *Engine) Drives(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.actors[name] != nil
}

// own adds an actor for a run. Adopted says why it changed hands; empty when it did not.
func (e *Engine) own(head journal.Head, adopted string, start bool) *actor {
	a := &actor{engine: e, head: head, adopted: adopted, flights: map[string]*flight{}}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.actors[head.Name] = a
	e.mu.Unlock()
	if start {
		a.post(mail{inbox: true})
	}
	return a
}

// disown drops an actor.
func (e *Engine) disown(a *actor) {
	a.stopClock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.actors[a.head.Name] == a {
		delete(e.actors, a.head.Name)
	}
}
