package eval

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// Runs are the operations on runs that an evaluation needs.
type Runs interface {
	// Pin writes the workers' offers into a specification, so that all its runs mean the same.
	Pin(ctx context.Context, project string, spec *agentv1.EvalSpec) error
	// Validate resolves every name in a run's specification and changes nothing. It returns a warning for each part of
	// the specification that would not be honoured.
	Validate(ctx context.Context, project string, spec *agentv1.RunSpec) ([]*agentv1.EvalWarning, error)
	// CheckSandboxes is Validate without the models, for a sample with a sandbox of its own.
	CheckSandboxes(ctx context.Context, project string, spec *agentv1.RunSpec) error
	// CheckSample checks the parts of a specification that depend on the sample, without a call to another service. Its
	// error names the sample.
	CheckSample(project string, spec *agentv1.RunSpec) error
	// CreateSample creates the run of an attempt at a sample. It is idempotent by key. It fails with [journal.ErrFenced]
	// if the evaluation, which is under, has ended or has another owner.
	CreateSample(ctx context.Context, project string, spec *agentv1.RunSpec, key string, under journal.Head) (run string, err error)
	// CancelAll cancels runs and returns when that is durable for all of them; it does not wait for their end. It is
	// idempotent by id.
	CancelAll(ctx context.Context, runs []string, id, reason string) error
	// Stuck reports that a run cannot be driven here, so that its end cannot be waited for: a later version has to
	// continue it, or a fault of the server keeps it.
	Stuck(run string) bool
	// View returns a run; full is with its content.
	View(ctx context.Context, run string, full bool) (*agentv1.Run, error)
}

// Config sets how evaluations run.
type Config struct {
	// MaxSamples bounds the concurrently active samples of one evaluation if its specification sets no bound. Default
	// 10; with sandboxes no more than twice the processors.
	MaxSamples int `yaml:"max_samples" env:"EVALFLEET_MAX_SAMPLES"`
	// CancelPatience is how long [Engine.Cancel] waits for active runs to end. Zero is 500ms.
	CancelPatience time.Duration `yaml:"-"`
}

// SetDefaults replaces zero fields by their defaults.
func (c *Config) SetDefaults() {
	c.MaxSamples = cmp.Or(c.MaxSamples, 10)
	c.CancelPatience = cmp.Or(c.CancelPatience, 500*time.Millisecond)
}

// Validate refuses a negative bound.
func (c *Config) Validate() error {
	if c.MaxSamples < 0 {
		return errors.New("max_samples: must not be negative; 0 is the default")
	}
	return nil
}

// Deps are the dependencies of the engine.
type Deps struct {
	Journals journal.Store
	Blobs    Blobs
	Runs     Runs
	Judges   Judges
	Logger   *slog.Logger
	// Replica is the owner's name in journals.
	Replica string
	// Hold returns why no new sample may start now; nil if one may. If Hold is nil, samples may always start.
	Hold func() *agentv1.RunWait
}

// Engine runs evaluations. Its methods are safe for concurrent use.
type Engine struct {
	cfg   Config
	deps  Deps
	folds *folds
	// reading has room for one: the check of a specification that reads its data set.
	reading chan struct{}

	mu      sync.Mutex
	drivers map[string]*activeLoop
	loading map[journal.Ref]struct{}     // adopted, and not driven yet
	unread  map[string]*agentv1.EvalWait // by name: evaluations whose journals cannot be read
	stopped bool
	work    sync.WaitGroup
	ctx     context.Context //nolint:containedctx // The life of all drivers, which outlive the calls that start them.
	cancel  context.CancelFunc
}

// activeLoop is a driver with the epoch under which it writes.
type activeLoop struct {
	*loop
	began journal.Head // the journal as the driver first knew it
	stop  context.CancelFunc
}

// New returns an engine that drives nothing yet.
func New(cfg Config, deps Deps) *Engine {
	cfg.SetDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	return &Engine{cfg: cfg, deps: deps, folds: newFolds(deps.Journals, deps.Blobs), reading: make(chan struct{}, 1), drivers: map[string]*activeLoop{}, loading: map[journal.Ref]struct{}{}, unread: map[string]*agentv1.EvalWait{}, ctx: ctx, cancel: cancel}
}

// Adopting records that an evaluation is about to be adopted: it counts as driven.
func (e *Engine) Adopting(ref journal.Ref) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loading[ref] = struct{}{}
}

// Adopt continues an evaluation that this replica owns now; head is as adoption left it. It is called at the start and
// after the death of another replica. It retries a journal that cannot be read, until it can be, the evaluation was
// ended by [Engine.Cancel] or has another owner, or the engine is closed.
func (e *Engine) Adopt(head journal.Head) {
	e.Adopting(head.Ref)
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.loading, head.Ref)
		delete(e.unread, head.Name)
	}()
	since := timestamppb.Now()
	for backoff := (retry.Backoff{First: retryPause, Max: lastPause}); ; {
		d, err := e.load(e.ctx, head)
		if err == nil {
			if !d.state.Ended() {
				e.deps.Logger.Info("an evaluation goes on", "eval", head.Name, "reason", "taken up", "samples", d.state.Eval.GetProgress().GetPending()+d.state.Eval.GetProgress().GetRunning())
				e.drive(d)
			}
			return
		}
		if e.ctx.Err() != nil {
			return
		}
		e.mu.Lock()
		e.unread[head.Name] = &agentv1.EvalWait{Reason: waits.Loading, Message: "its journal cannot be read: " + rpcerr.ToStatus(err).Message(), Since: since}
		e.mu.Unlock()
		pause := backoff.Next()
		e.deps.Logger.Error("an evaluation cannot be taken up; it waits and is tried again", "eval", head.Name, "error", err, "again_in", pause)
		if retry.Sleep(e.ctx, pause) != nil {
			return
		}
		if now, err := e.deps.Journals.Open(e.ctx, head.Name); err == nil && (now.Epoch != head.Epoch || now.Owner != head.Owner || now.Seq != head.Seq) || errors.Is(err, journal.ErrNotFound) {
			return
		}
	}
}

// lastPause is the longest pause between two attempts to resume an evaluation.
const lastPause = time.Minute

// Refs are the evaluations that are driven here, or are about to be.
func (e *Engine) Refs() []journal.Ref {
	e.mu.Lock()
	defer e.mu.Unlock()
	refs := slices.Collect(maps.Keys(e.loading))
	for _, d := range e.drivers {
		refs = append(refs, d.began.Ref)
	}
	return refs
}

// Waits returns what an evaluation itself waits for. It is empty if the evaluation progresses, or is neither driven
// here nor about to be.
func (e *Engine) Waits(name string) []*agentv1.EvalWait {
	e.mu.Lock()
	d, wait := e.drivers[name], e.unread[name]
	e.mu.Unlock()
	if d != nil {
		wait = d.waiting.Load()
	}
	if wait == nil {
		return nil
	}
	return []*agentv1.EvalWait{proto.CloneOf(wait)}
}

// hold returns why no new sample may start now; nil if there is none.
func (e *Engine) hold() *agentv1.RunWait {
	if e.deps.Hold == nil {
		return nil
	}
	return e.deps.Hold()
}

// Close stops all drivers. Evaluations stay as they are and resume when they are adopted.
func (e *Engine) Close() {
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	e.cancel()
	e.work.Wait()
}

// State returns an evaluation, folded from its journal. The state is shared and must not be changed. An evaluation with
// a damaged journal has failed, see State.Damaged.
func (e *Engine) State(ctx context.Context, name string) (*State, error) {
	head, err := e.open(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := e.folds.state(ctx, head)
	if errors.Is(err, journal.ErrUnreadable) {
		return e.damaged(ctx, head)
	}
	return s, err
}

// Samples returns the samples of an evaluation.
func (e *Engine) Samples(ctx context.Context, s *State) (*Samples, error) {
	name, err := resource.Parse("name", s.Eval.GetName(), "evals")
	if err != nil {
		return nil, err
	}
	return e.folds.samplesOf(ctx, name.Project, s.Dataset)
}

func (e *Engine) open(ctx context.Context, name string) (journal.Head, error) {
	head, err := e.deps.Journals.Open(ctx, name)
	return head, journal.Gone(err, name)
}

// load returns the driver of an evaluation, made from its journal. [loop.prepare] reads everything else that the
// driver needs.
func (e *Engine) load(ctx context.Context, head journal.Head) (*loop, error) {
	state := &State{} // a driver's own, which it changes
	if err := e.folds.follow(ctx, head, state); err != nil {
		return nil, err
	}
	name, err := resource.Parse("name", head.Name, "evals")
	if err != nil {
		return nil, err
	}
	return &loop{engine: e, project: name.Project, head: head, state: state, wake: make(chan struct{}, 1)}, nil
}

// drive starts a driver's goroutine, unless the engine is closed or the evaluation has a driver that began no earlier
// in the journal. It replaces a driver that began earlier. If that driver has an earlier epoch, it can no longer write:
// an evaluation may be resumed while the start adopts the open journals. If it has the same epoch, it has journaled the
// end, after which the evaluation was resumed.
func (e *Engine) drive(d *loop) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := d.head.Name
	before := e.drivers[name]
	if e.stopped || before != nil && cmp.Or(cmp.Compare(before.began.Epoch, d.head.Epoch), cmp.Compare(before.began.Seq, d.head.Seq)) >= 0 {
		return
	}
	if before != nil {
		before.stop()
	}
	ctx, stop := context.WithCancel(e.ctx)
	now := &activeLoop{loop: d, began: d.head, stop: stop}
	e.drivers[name] = now
	e.work.Go(func() {
		defer stop()
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.drivers[name] == now {
				delete(e.drivers, name)
			}
		}()
		if err := d.run(ctx); err != nil && ctx.Err() == nil {
			e.deps.Logger.Info("an evaluation is left to another replica", "eval", name, "error", err)
		}
	})
}

// batchedSamples is the least default of active samples without sandboxes whose model calls travel in batches: they
// wait for hours, and take next to nothing meanwhile.
const batchedSamples = 1000

// bound returns how many samples of an evaluation may be active at once.
func (e *Engine) bound(spec *agentv1.EvalSpec) int {
	switch {
	case spec.MaxSamples != nil:
		return int(spec.GetMaxSamples())
	case len(spec.GetSandboxes()) > 0:
		return min(e.cfg.MaxSamples, 2*runtime.NumCPU())
	case spec.GetConfig().GetBatch().GetEnabled():
		return max(e.cfg.MaxSamples, batchedSamples)
	}
	return e.cfg.MaxSamples
}

// rowOf returns the row of an evaluation in lists, which show no content. It is written with each append.
func rowOf(s *State) journal.Row {
	view, _ := proto.Marshal(redact.Content(s.Eval)) // A message of ours always marshals.
	return journal.Row{Kind: journal.KindEval, State: int32(s.Eval.GetState()), Done: s.Ended(), View: view}
}

// newEvent sets the fields that every event of an evaluation has. What names no actor the platform did.
func newEvent(seq int64, e *agentv1.Event) *agentv1.Event {
	e.Seq, e.Time, e.Actor, e.Critical = seq, timestamppb.New(time.Now()), cmp.Or(e.GetActor(), "system"), journal.Critical(e)
	return e
}
