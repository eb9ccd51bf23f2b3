// Package engine drives runs: it decides the next step from a run's state, journals the decision, and calls the owners
// of the effects.
//
// # The effect protocol
//
//	run loop                        journal                     owner (modelgw, toolexec, sandboxd)
//	  │ decide: events …, intent{key} ─▶ append, one fsync
//	  │ reconcile: every open intent is pending
//	  │    effect ─────── call with the key ──────────────────────▶ claim · do · keep the result
//	  │    effect ◀────── result ─────────────────────────────────
//	  │ outcome, what follows, next intent ─▶ append, one fsync
//	  │ release(key), later and in batches ───────────────────────▶ forget the result
//
// A decision never starts an effect. It only journals an intent. After each append the run loop begins an
// [effects.Pending] for each open intent that has none. After a crash the successor folds the journal and does the
// same: it calls the owners with the same keys and the same content. An owner attaches a repeated request to the
// running effect, or returns its stored result. So recovery from a crash needs no code path of its own.
//
// # Who runs when
//
// Each run that this replica owns has an actor with a mailbox. Mail (an outcome, a clock, a command) starts a
// short-lived goroutine, the run loop. It handles all pending mail in one step and one append, and ends when the
// mailbox is empty. A waiting run has no goroutine. A run that waits for long has no state in memory either.
//
//	       mail                 ┌────────────────────── step ───────────────────────┐
//	idle ───────▶ driving ──▶   │ load · receive · decide … · append · reconcile    │ ──▶ idle, parked (state dropped) or finished (actor dropped)
//	                            └────────────────────────────────────────────────────┘
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalfleet/evalfleet/pkg/clockjump"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/replica"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/effects"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/peers"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

// Config sets how runs are driven. The zero value is the intended one.
type Config struct {
	// MaxGenerates bounds the open model calls per account; the runs behind them wait without cost. Default 512.
	MaxGenerates int `yaml:"max_generates" env:"EVALFLEET_AGENTORCH_MAX_GENERATES"`
	// RenewLeases is how often the leases of the runs' sandboxes are renewed. Default 2m.
	RenewLeases time.Duration `yaml:"renew_leases" env:"EVALFLEET_AGENTORCH_RENEW_LEASES"`
	// Beat is the interval at which the engine renews the liveness of its replica and looks for runs without a living
	// replica. Zero is 1s.
	Beat time.Duration `yaml:"-"`
	// KeepResults is the number of journaled results of a run at which the engine releases them to their owners, before
	// the run ends. Zero is 64.
	KeepResults int `yaml:"-"`
	// MaxLoads bounds how many journals are folded at once. Zero is 16.
	MaxLoads int `yaml:"-"`
}

// SetDefaults replaces zero fields by their defaults.
func (c *Config) SetDefaults() {
	c.MaxGenerates = cmp.Or(c.MaxGenerates, 512)
	c.RenewLeases = cmp.Or(c.RenewLeases, 2*time.Minute)
	c.Beat = cmp.Or(c.Beat, time.Second)
	c.KeepResults = cmp.Or(c.KeepResults, 64)
	c.MaxLoads = cmp.Or(c.MaxLoads, 16)
}

// Validate returns an error for each field out of range.
func (c *Config) Validate() error {
	var faults []error
	if c.MaxGenerates < 0 {
		faults = append(faults, errors.New("max_generates: must not be negative; 0 is the default"))
	}
	if c.RenewLeases < 0 {
		faults = append(faults, errors.New("renew_leases: must not be negative; 0 is the default"))
	}
	return errors.Join(faults...)
}

// Deps are the dependencies of the engine.
type Deps struct {
	Store journal.Store
	// Blobs holds large values of commands. If it is nil, commands have them.
	Blobs offload.Store
	// Replica is this process, which owns runs under the name of its replica. Nil for an engine that is never run.
	Replica   *replica.Process
	Models    modelv1.ModelServiceClient
	Tools     toolv1.ToolServiceClient
	Sandboxes sandboxv1.SandboxServiceClient
	Agents    run.Agents
	Scorers   *score.Registry
	// Workers calls workers for work other than tools. It may be nil if no run names a worker.
	Workers effects.Workers
	// Away reports whether a service is unreachable now: modelgw, toolexec or sandboxd. If nil, all count as reachable.
	Away func(service string) bool
	// Lack returns the reason why no new work may start, such as a nearly full disk. Nil, or an empty result, means
	// that work may start.
	Lack func() string
	// Notes receives the progress of open effects. It may be nil.
	Notes  *progress.Board
	Logger *slog.Logger
	// Traces makes the spans of runs; nil makes none.
	Traces *telemetry.Traces
	// AdoptEval is called for each eval that this replica takes over. Nil ignores them.
	AdoptEval func(l journal.Listed)
	// WakeEval looks at the inbox of an eval. Nil if AdoptEval is nil.
	WakeEval func(name string)
	// EvalRefs returns the evals that are driven here, or are about to be. An eval of this replica that is missing for
	// two beats is adopted again. Nil if AdoptEval is nil.
	EvalRefs func() []journal.Ref
}

// Engine drives the runs that this replica owns. Its methods are safe for concurrent use.
type Engine struct {
	cfg  Config
	deps Deps

	outages   peers.Outages
	caller    *effects.Caller
	listeners peers.ProgressListeners
	leases    leases
	arrivals  *peers.WorkerArrivals
	// living is how many replicas lived at the last beat, and placed counts the runs that were left to one of them.
	living, placed atomic.Int64
	// uncounted is the time that limits on time exclude while this engine drives.
	uncounted excludedTime
	clock     clockjump.Detector
	loads     chan struct{}
	ready     chan struct{}
	// resumed is set once all earlier runs of this replica have an actor.
	resumed atomic.Bool
	// hold is why no new work may start; nil if it may.
	hold atomic.Pointer[agentv1.RunWait]

	// silent is the wait of all active runs while the store does not answer; nil if it answered the last beat.
	silent atomic.Pointer[agentv1.RunWait]

	// Only Run touches this.

	undriven map[journal.Ref]struct{} // journals of this replica that the last beat found undriven
	mailed   map[string]mailed        // the journals of this replica with commands that wait

	// life ends with the engine; effects that are open then continue at their owners.
	life    context.Context //nolint:containedctx // the life of what the engine starts, not of a call
	end     context.CancelFunc
	working sync.WaitGroup

	mu     sync.Mutex
	actors map[string]*actor
	closed bool
}

// New returns an engine. It does nothing until Run.
func New(cfg Config, deps Deps) *Engine {
	cfg.SetDefaults()
	if deps.Notes == nil {
		deps.Notes = &progress.Board{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		cfg: cfg, deps: deps, life: ctx, end: cancel,
		loads: make(chan struct{}, cfg.MaxLoads), ready: make(chan struct{}), actors: map[string]*actor{}, arrivals: peers.NewWorkerArrivals(),
	}
	e.uncounted.ttl = deps.Replica.TTL()
	e.caller = effects.NewCaller(ctx, e.working.Go, effects.Deps{
		Models: deps.Models, Tools: deps.Tools, Sandboxes: deps.Sandboxes, Workers: deps.Workers, MaxGenerates: cfg.MaxGenerates,
		Notes: deps.Notes, Outages: &e.outages, Progress: &e.listeners, Logger: deps.Logger, Traces: deps.Traces,
	})
	return e
}

// Replica returns the name under which this process owns runs.
func (e *Engine) Replica() string { return e.deps.Replica.Name() }

// Place returns the replica that is to drive the next run of an evaluation: this replica, or none, so that any replica
// claims the run. With n living replicas, one run in n is this replica's and begins at once.
func (e *Engine) Place() string {
	if n := e.living.Load(); n > 1 && e.placed.Add(1)%n != 1 {
		return ""
	}
	return e.Replica()
}

// Run takes over the runs that this replica owned before, and then owns, drives and adopts runs until ctx ends. It
// returns when all its goroutines have ended. Unfinished runs stay as they are; this replica or another resumes them.
func (e *Engine) Run(ctx context.Context) error {
	defer e.shutDown() //nolint:contextcheck // It ends what outlives ctx.
	for _, begin := range []func(context.Context) error{e.deps.Replica.Beat, e.resume, e.claim} {
		if err := e.retryWhileStoreAway(ctx, begin); err != nil {
			return ignoreEnd(ctx, err)
		}
	}
	e.noteBeat(nil)
	e.uncounted.noteBeat(time.Now(), false)
	close(e.ready)
	e.watch()
	beats := time.NewTicker(e.cfg.Beat)
	defer beats.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beats.C:
			began := time.Now()
			if gap := e.clock.Look(began, e.deps.Replica.TTL()); gap > 0 {
				e.clockJumped(gap)
			}
			if e.leases.take(time.Now()) {
				e.working.Go(func() { e.keepLeases(e.life) })
			}
			e.outages.Probe(e.deps.Away, time.Now())
			before := e.silent.Load()
			err := e.beatWithTimeout(ctx)
			e.uncounted.noteBeat(began, rpcerr.StoreAway(err))
			known := before != nil && rpcerr.StoreAway(err) // An outage is logged once.
			if errors.Is(err, replica.ErrUnknown) {
				return fmt.Errorf("engine: another process runs as the replica %s; give each process a name of its own: %w", e.Replica(), err)
			}
			if e.noteBeat(err); err == nil {
				err = errors.Join(e.claim(ctx), e.reown(ctx), e.collect(ctx))
			}
			if err != nil && ctx.Err() == nil && !known {
				e.deps.Logger.Error("cannot beat or claim", "error", err)
			}
			if e.admissionBlock() == "" {
				e.arrivals.Everywhere(waits.RoomSubject)
			}
			e.caller.Flush(e.life) //nolint:contextcheck // Effects end with the engine, not with the loop.
			e.worked(began)
		}
	}
}

// retryWhileStoreAway runs begin, and retries it while the store is away. New work waits for the store in the meantime.
func (e *Engine) retryWhileStoreAway(ctx context.Context, begin func(context.Context) error) error {
	for {
		err := begin(ctx)
		if !rpcerr.StoreAway(err) {
			return err
		}
		if e.silent.Load() == nil {
			e.deps.Logger.Error("cannot take up runs; it is tried again", "error", err)
		}
		e.noteBeat(err)
		if retry.Sleep(ctx, e.cfg.Beat) != nil {
			return err
		}
	}
}

// shutDown lets steps end their append, and stops waiting for effects. Once this process has left, its runs belong to
// another replica, or to the next process of this one.
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
	// Last, and as far as the owners answer: they may have ended before.
	last, stop := context.WithTimeout(context.Background(), lastRelease)
	defer stop()
	e.caller.Flush(last)
	e.working.Wait()
}

// lastRelease bounds how long a stop waits to release results to their owners.
const lastRelease = time.Second

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Ready is closed once earlier processes of this replica are fenced off. No run should be created before that.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Drive begins to drive a run that this replica has just created. Eval is the name of its evaluation; empty if it has
// none.
func (e *Engine) Drive(head journal.Head, eval string) {
	e.own(&actor{head: head, eval: eval})
	e.Wake(head.Name)
}

// Wake looks at a run's inbox, if this replica owns it.
func (e *Engine) Wake(name string) {
	e.mu.Lock()
	a := e.actors[name]
	e.mu.Unlock()
	if a != nil {
		a.post(mail{inbox: true})
	}
}

// Drives reports whether the engine drives a run.
func (e *Engine) Drives(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.actors[name] != nil
}

// own adds an actor for a run. It returns false if the engine has ended, or has an actor of the same epoch or a later
// one.
func (e *Engine) own(a *actor) bool {
	a.backoff = retry.Backoff{First: firstTry, Max: lastTry}
	a.engine, a.pending, a.seen = e, map[string]*effects.Pending{}, e.uncounted.until(time.Now())
	a.lapses, _ = e.deps.Replica.Fence()
	e.mu.Lock()
	before := e.actors[a.head.Name]
	if e.closed || before != nil && before.head.Epoch >= a.head.Epoch {
		e.mu.Unlock()
		return false
	}
	e.actors[a.head.Name] = a
	e.mu.Unlock()
	if before != nil {
		before.await("", nil, time.Time{})
	}
	return true
}

// admissionBlock returns the reason why no new work may start; empty if it may.
func (e *Engine) admissionBlock() string {
	if e.deps.Lack == nil {
		return ""
	}
	return e.deps.Lack()
}

// watch starts the watches of services and workers.
func (e *Engine) watch() {
	w := &peers.Watches{Models: e.deps.Models, Tools: e.deps.Tools, Progress: &e.listeners, Arrivals: e.arrivals, Logger: e.deps.Logger}
	if e.deps.Workers != nil {
		w.Workers = e.deps.Workers.Served()
	}
	w.Start(e.life, e.working.Go)
}

// Waits returns the present waits of an evaluation's runs that no journal records: for services and a store that do not
// answer, for a later version, for a place among the open model calls.
func (e *Engine) Waits(eval string) []*agentv1.EvalWait {
	return append(e.outages.Waits(eval), e.parkedOf(eval)...)
}

// disown drops an actor.
func (e *Engine) disown(a *actor) {
	a.stopClock()
	a.await("", nil, time.Time{})
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.actors[a.head.Name] == a {
		delete(e.actors, a.head.Name)
	}
}
