// Package engine drives runs: it asks a run's state what comes next, journals it, and has the owners of the effects do
// it.
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
// An effect is never started by the decision that wants it. A decision only journals an intent; after each append the
// run loop looks at all open intents and begins an [effects.Pending] for each that has none. After a crash the
// successor folds the journal and does the very same: it calls the owners with the same keys and the same content, and
// they attach it to what is running or give it what is done. So the way back from a crash is the only way there is.
//
// # Who runs when
//
// Each run that this replica owns has an actor with a mailbox. Mail (an outcome, a clock, a command) starts a
// short-lived goroutine, the run loop, which handles all mail that is there in one step and one append, and ends when
// there is no more. A run that waits has no goroutine, and one that waits for long has no state in memory either.
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
	"github.com/evalfleet/evalfleet/pkg/replica"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
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
	// Beat is how often the engine says that its replica lives, and looks for runs that no living one has. Zero is 1s.
	Beat time.Duration `yaml:"-"`
	// KeepResults is from how many results on that are in the journal of a run at work their owners forget them, before
	// its end. Zero is 64.
	KeepResults int `yaml:"-"`
	// MaxLoads bounds how many journals are folded at once. Zero is 16.
	MaxLoads int `yaml:"-"`
}

// SetDefaults fills in what is zero.
func (c *Config) SetDefaults() {
	c.MaxGenerates = cmp.Or(c.MaxGenerates, 512)
	c.RenewLeases = cmp.Or(c.RenewLeases, 2*time.Minute)
	c.Beat = cmp.Or(c.Beat, time.Second)
	c.KeepResults = cmp.Or(c.KeepResults, 64)
	c.MaxLoads = cmp.Or(c.MaxLoads, 16)
}

// Validate refuses what cannot work.
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

// Deps is what the engine works with.
type Deps struct {
	Store journal.Store
	// Replica is this process, which owns runs under the name of its replica. Nil for an engine that is never run.
	Replica   *replica.Process
	Models    modelv1.ModelServiceClient
	Tools     toolv1.ToolServiceClient
	Sandboxes sandboxv1.SandboxServiceClient
	Agents    run.Agents
	Scorers   *score.Registry
	// Workers asks workers for what is no tool; nil where no run names one.
	Workers effects.Workers
	// Away tells that nobody answers at a service now: modelgw, toolexec or sandboxd. Nil says that all are there.
	Away func(service string) bool
	// Lack tells what keeps new work from beginning, such as a disk that is nearly full; nil or an empty answer for
	// nothing.
	Lack func() string
	// Notes is where the engine tells what is known of open effects; nil where nobody watches.
	Notes  *progress.Board
	Logger *slog.Logger
	// AdoptEval is told of every eval that this replica takes over. Nil ignores them.
	AdoptEval func(l journal.Listed)
	// WakeEval looks at the inbox of an eval. Nil where AdoptEval is.
	WakeEval func(name string)
	// EvalRefs are the evals that are driven here, or are about to be. An eval of this replica that is not among them
	// for two beats is adopted again. Nil where AdoptEval is.
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
	// excludedTime is what bounds of time leave out while this engine drives.
	uncounted excludedTime
	clock     clockjump.Detector
	loads     chan struct{}
	ready     chan struct{}
	// resumed says that all runs of before have an actor.
	resumed atomic.Bool
	// hold is why no new work should begin; nil for nothing.
	hold atomic.Pointer[agentv1.RunWait]

	// silent is what all runs at work wait for since the store did not answer the last beat; nil when it did.
	silent atomic.Pointer[agentv1.RunWait]

	// Only Run touches this.

	undriven map[journal.Ref]struct{} // what the last beat found to be this replica's and undriven
	mailed   map[string]mailed        // the journals of this replica with commands that wait

	// life ends with the engine; effects that are then open go on with their owners.
	life    context.Context //nolint:containedctx // the life of what the engine starts, not of a call
	end     context.CancelFunc
	working sync.WaitGroup

	mu     sync.Mutex
	actors map[string]*actor
	closed bool
}

// New makes an engine. It does nothing until Run.
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
		Notes: deps.Notes, Outages: &e.outages, Progress: &e.listeners, Logger: deps.Logger,
	})
	return e
}

// Replica returns the name under which this process owns runs.
func (e *Engine) Replica() string { return e.deps.Replica.Name() }

// Place returns the replica that is to drive the next run of an evaluation: this one, or none, for any that claims it.
// Of as many runs as replicas live one is this replica's, which begins at once.
func (e *Engine) Place() string {
	if n := e.living.Load(); n > 1 && e.placed.Add(1)%n != 1 {
		return ""
	}
	return e.Replica()
}

// Run takes over the runs that this replica owned before, and then owns, drives and adopts until ctx ends. It returns
// when nothing of it runs any more; runs are left as they are, for this replica or another to go on with.
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
			known := before != nil && rpcerr.StoreAway(err) // One line tells of an outage.
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

// retryWhileStoreAway does what the engine begins with, again and again while the store is away. What would begin
// meanwhile waits for the store.
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

// shutDown lets steps end their append, and ends the waiting for effects. Runs are another replica's, or the next
// process's of this one, once this process has left.
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

// lastRelease bounds what a stop waits for owners to hear which results they may forget.
const lastRelease = time.Second

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Ready is closed once earlier processes of this replica are fenced off. No run should be created before that.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Drive begins to drive a run that this replica has just created. Eval is the evaluation that it belongs to; empty for
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

// Drives reports whether the engine goes on with a run.
func (e *Engine) Drives(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.actors[name] != nil
}

// own adds an actor for a run. It returns false where the engine has ended, or has one of the same epoch or a later
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

// admissionBlock is what keeps new work from beginning; empty for nothing.
func (e *Engine) admissionBlock() string {
	if e.deps.Lack == nil {
		return ""
	}
	return e.deps.Lack()
}

// watch begins to follow what services and workers say.
func (e *Engine) watch() {
	w := &peers.Watches{Models: e.deps.Models, Tools: e.deps.Tools, Progress: &e.listeners, Arrivals: e.arrivals, Logger: e.deps.Logger}
	if e.deps.Workers != nil {
		w.Workers = e.deps.Workers.Served()
	}
	w.Start(e.life, e.working.Go)
}

// Waits returns what runs of an evaluation wait for now that no journal tells: services and a store that do not answer,
// a later version, their place among the open model calls.
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
