package eval

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Runs is what an evaluation needs of runs: the RunService's own methods, called in the same process, and the check of a specification that CreateRun makes.
type Runs interface {
	// Check resolves every name in a run's specification and changes nothing. It says what would not be done as the specification asks for.
	Check(ctx context.Context, project string, spec *agentv1.RunSpec) ([]*agentv1.EvalWarning, error)
	// CheckSandboxes is Check without the models, for a sample with a sandbox of its own.
	CheckSandboxes(ctx context.Context, project string, spec *agentv1.RunSpec) error
	// CheckSample checks what a run needs of its sample, and asks no other service. Its error names the sample.
	CheckSample(project string, spec *agentv1.RunSpec) error
	// Pin writes into a specification what workers offer under its names, so that all runs mean the same.
	Pin(ctx context.Context, project string, spec *agentv1.EvalSpec) error
	// CreateRun makes a run; the same request id gives the same run.
	CreateRun(context.Context, *agentv1.CreateRunRequest) (*agentv1.Run, error)
	// Cancel has runs cancelled and returns when that is durable for all of them; it does not wait for their end. The same id again is the same cancel.
	Cancel(ctx context.Context, runs []string, id, reason string) error
	// Stuck reports that a run cannot be driven here, so that its end cannot be waited for: a later version has to go on with it, or a fault of the server keeps it.
	Stuck(run string) bool
	// GetRun gives a run.
	GetRun(context.Context, *agentv1.GetRunRequest) (*agentv1.Run, error)
}

// Config sets how evaluations run.
type Config struct {
	// MaxSamples bounds the samples of one evaluation that are at work at once, where its specification gives no bound. Default 10; with sandboxes no more than twice the processors.
	MaxSamples int `yaml:"max_samples" env:"EVALFLEET_MAX_SAMPLES"`
	// CancelPatience is how long [Engine.Cancel] waits for the end of what runs. Zero is 500ms.
	CancelPatience time.Duration `yaml:"-"`
}

const defaultCancelPatience = 500 * time.Millisecond

// SetDefaults sets the default bound.
func (c *Config) SetDefaults() { c.MaxSamples = 10 }

// Deps are what the engine works with.
type Deps struct {
	Journals journal.Store
	Blobs    Blobs
	Runs     Runs
	Judges   Judges
	Logger   *slog.Logger
	// Replica is the owner's name in journals.
	Replica string
	// Hold returns why no new sample should begin now, and nil for nothing. A nil Hold is nothing ever.
	Hold func() *agentv1.RunWait
}

// Engine runs evaluations. Its methods may be called concurrently.
type Engine struct {
	cfg   Config
	deps  Deps
	folds *folds
	// reading has room for one: the check of a specification that reads its data set.
	reading chan struct{}

	mu      sync.Mutex
	drivers map[string]*atWork
	loading map[journal.Ref]struct{}     // adopted, and not driven yet
	unread  map[string]*agentv1.EvalWait // by name, those whose journals cannot be read
	stopped bool
	work    sync.WaitGroup
	ctx     context.Context //nolint:containedctx // The life of all drivers, which outlive the calls that start them.
	cancel  context.CancelFunc
}

// atWork is a driver with the epoch under which it writes.
type atWork struct {
	*driver
	began journal.Head // the journal as the driver first knew it
	stop  context.CancelFunc
}

// New makes an engine that drives nothing yet.
func New(cfg Config, deps Deps) *Engine {
	if cfg.MaxSamples <= 0 {
		cfg.SetDefaults()
	}
	if cfg.CancelPatience <= 0 {
		cfg.CancelPatience = defaultCancelPatience
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Engine{cfg: cfg, deps: deps, folds: newFolds(deps.Journals, deps.Blobs), reading: make(chan struct{}, 1), drivers: map[string]*atWork{}, loading: map[journal.Ref]struct{}{}, unread: map[string]*agentv1.EvalWait{}, ctx: ctx, cancel: cancel}
}

// Adopting notes that an evaluation is about to be adopted: it counts among those that are driven.
func (e *Engine) Adopting(ref journal.Ref) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loading[ref] = struct{}{}
}

// Adopt continues an evaluation that this replica owns now; head is as adoption left it. It is called at the start and
// after the death of another replica. It retries a journal that cannot be read, until it can be, the evaluation has
// another owner, or the engine is closed.
func (e *Engine) Adopt(head journal.Head) {
	e.Adopting(head.Ref)
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.loading, head.Ref)
		delete(e.unread, head.Name)
	}()
	since := timestamppb.Now()
	for pause := retryPause; ; pause = min(2*pause, lastPause) {
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
		e.unread[head.Name] = &agentv1.EvalWait{Reason: waitLoading, Message: "its journal cannot be read: " + rpcerr.ToStatus(err).Message(), Since: since}
		e.mu.Unlock()
		e.deps.Logger.Error("an evaluation cannot be taken up; it waits and is tried again", "eval", head.Name, "error", err, "again_in", pause)
		if retry.Sleep(e.ctx, pause) != nil {
			return
		}
		if now, err := e.deps.Journals.Open(e.ctx, head.Name); err == nil && (now.Epoch != head.Epoch || now.Owner != head.Owner) || errors.Is(err, journal.ErrNotFound) {
			return
		}
	}
}

// lastPause is the longest pause between two tries to take up an evaluation.
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

// Waits returns what keeps an evaluation itself from going on: none for one that does, or is neither driven here nor
// about to be.
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

// hold returns why no new sample should begin now; nil for nothing.
func (e *Engine) hold() *agentv1.RunWait {
	if e.deps.Hold == nil {
		return nil
	}
	return e.deps.Hold()
}

// Close stops all drivers. Evaluations stay as they are and go on when they are adopted.
func (e *Engine) Close() {
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	e.cancel()
	e.work.Wait()
}

// Create checks a specification, makes the evaluation and starts it. With a request id a repeated call gives the same evaluation. With validateOnly it makes nothing.
func (e *Engine) Create(ctx context.Context, project string, spec *agentv1.EvalSpec, requestID string, validateOnly bool) (*State, error) {
	spec = proto.CloneOf(spec)
	digest := requestDigest(spec)
	samples, warnings, err := e.check(ctx, project, spec)
	if err != nil {
		if !validateOnly {
			rpcerr.LogRefusal(ctx, e.deps.Logger, "an evaluation is refused", err, "project", project, "task", headtail.Cut(spec.GetTask(), maxLogged))
		}
		return nil, err
	}
	ref, err := storeSamples(ctx, e.deps.Blobs, project, samples)
	if err != nil {
		return nil, err
	}
	if inline := spec.GetDataset().GetInline(); inline != nil {
		spec.Dataset.Source = nil // The samples stand in the body.
	}
	created := &agentv1.EvalCreated{Spec: spec, Samples: int32(samples.Len()), Dataset: ref, Warnings: warnings}
	name := resource.Format(project, "evals", newID())
	event := newEvent(1, &agentv1.Event{Journal: name, Critical: true, Kind: &agentv1.Event_EvalCreated{EvalCreated: created}})
	state := &State{}
	state.Apply(event)
	if validateOnly {
		state.Eval.Name = ""
		return state, nil
	}
	c := journal.Creation{Name: name, Owner: e.deps.Replica, Entries: []journal.Entry{{Event: event}}, Row: rowOf(state)}
	if requestID != "" {
		c.Request, c.Digest = project+"/evals/"+requestID, digest
	}
	head, isNew, err := e.deps.Journals.Create(ctx, c)
	switch {
	case errors.Is(err, journal.ErrReused):
		return nil, rpcerr.RequestIDReused(requestID, "request id %q was used for another evaluation", requestID)
	case err != nil:
		return nil, err
	case !isNew:
		return e.State(ctx, head.Name)
	}
	d, err := e.load(ctx, head)
	if err != nil {
		return nil, err
	}
	e.logBegin(state)
	e.drive(d) //nolint:contextcheck // A driver outlives the call that starts it.
	return state, nil
}

// check resolves all that a specification names and reads its samples. It says what would not be done as the specification asks for.
func (e *Engine) check(ctx context.Context, project string, spec *agentv1.EvalSpec) (*Samples, []*agentv1.EvalWarning, error) {
	if spec.GetTask() == "" {
		return nil, nil, rpcerr.InvalidField("spec.task", "an evaluation needs a task's name")
	}
	if len(spec.GetModels()) == 0 {
		return nil, nil, rpcerr.InvalidField("spec.models", "an evaluation needs a model, such as mockllm/model")
	}
	if epochs := spec.GetEpochs(); epochs != nil && epochs.Count != nil && epochs.GetCount() < 1 {
		return nil, nil, rpcerr.InvalidField("spec.epochs.count", "every sample runs at least once, not %d times; leave epochs out for once", epochs.GetCount())
	}
	if err := checkRuns(spec, nil); err != nil {
		return nil, nil, err
	}
	if tries := spec.GetRetryOnError(); tries < 0 || tries > bound.EvalRetries {
		return nil, nil, rpcerr.InvalidField("spec.retry_on_error", "is %d; want 0 or more, and at most %d", tries, bound.EvalRetries)
	}
	if n := spec.GetFailOnError().GetThreshold(); !(n >= 0 && n < 1 || n == math.Trunc(n) && n >= 1 && n <= math.MaxFloat64) {
		return nil, nil, rpcerr.InvalidField("spec.fail_on_error", "is %v; want a part of the samples below 1, or a whole number of them", n)
	}
	if spec.MaxSamples != nil && spec.GetMaxSamples() < 1 {
		return nil, nil, rpcerr.InvalidField("spec.max_samples", "must be at least 1; leave it out for the server's bound")
	}
	if len(spec.GetSteps()) == 0 {
		spec.Steps = []*agentv1.AgentRef{{Name: "generate"}}
	}
	if err := e.deps.Runs.Pin(ctx, project, spec); err != nil {
		return nil, nil, err
	}
	if err := e.deps.Judges.check(spec); err != nil {
		return nil, nil, err
	}
	// One data set at a time: a large one takes much memory until it is stored.
	select {
	case e.reading <- struct{}{}:
		defer func() { <-e.reading }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	samples, err := readSamples(ctx, e.deps.Blobs, project, spec)
	if err != nil {
		return nil, nil, err
	}
	if err := checkRuns(spec, samples); err != nil {
		return nil, nil, err
	}
	if err := e.deps.Judges.checkTargets(ctx, spec, samples); err != nil {
		return nil, nil, err
	}
	var warnings []*agentv1.EvalWarning
	for i, sample := range samples.All() {
		for model := range spec.GetModels() {
			if err := ctx.Err(); err != nil {
				return nil, nil, err
			}
			if i > 0 && model > 0 {
				break // What a sample needs is the same for every model.
			}
			slot := &Slot{Sample: i, Epoch: 1, Model: model}
			run, err := runSpec("", spec, sample, slot)
			if err != nil {
				return nil, nil, err
			}
			switch {
			case i == 0: // The names are those of the task; one sample is enough for all of them.
				var more []*agentv1.EvalWarning
				more, err = e.deps.Runs.Check(ctx, project, run)
				warnings = appendNew(warnings, more)
			case sample.GetSandbox() != nil:
				err = e.deps.Runs.CheckSandboxes(ctx, project, run)
			default:
				err = e.deps.Runs.CheckSample(project, run)
			}
			if err != nil {
				return nil, nil, err
			}
		}
	}
	return samples, warnings, nil
}

// checkRuns bounds the runs of an evaluation. It is asked before the samples are read, with nil, and after.
func checkRuns(spec *agentv1.EvalSpec, samples *Samples) error {
	epochs, models := max(1, int64(spec.GetEpochs().GetCount())), int64(len(spec.GetModels()))
	runs, factors := epochs*models, fmt.Sprintf("%d epochs × %d models", epochs, models)
	if samples != nil {
		runs, factors = runs*int64(samples.Len()), fmt.Sprintf("%d samples × %s", samples.Len(), factors)
	}
	if runs <= bound.EvalRuns {
		return nil
	}
	field := "spec.dataset"
	switch {
	case epochs > 1:
		field = "spec.epochs.count"
	case models > 1:
		field = "spec.models"
	}
	return rpcerr.InvalidField(field, "%s are %d runs; an evaluation has at most %d", factors, runs, bound.EvalRuns)
}

// appendNew appends the warnings that are not there yet. One that holds for all calls of a model takes the place of one
// that says the same of a step.
func appendNew(all, more []*agentv1.EvalWarning) []*agentv1.EvalWarning {
	for _, w := range more {
		same := slices.IndexFunc(all, func(known *agentv1.EvalWarning) bool { return known.GetMessage() == w.GetMessage() })
		switch {
		case same < 0:
			all = append(all, w)
		case w.GetField() == "":
			all[same] = w
		}
	}
	return all
}

// State returns an evaluation as its journal tells it. It is shared and must not be changed.
func (e *Engine) State(ctx context.Context, name string) (*State, error) {
	head, err := e.open(ctx, name)
	if err != nil {
		return nil, err
	}
	return e.folds.state(ctx, head)
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

// command puts a command into an evaluation's inbox and wakes its driver. The evaluation must be at work.
func (e *Engine) command(ctx context.Context, name, id string, c command) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := e.deps.Journals.Post(ctx, name, journal.Command{ID: id, Body: body}); err != nil {
		if errors.Is(err, journal.ErrReused) {
			return rpcerr.RequestIDReused(id, "request id %q was used for another command", id)
		}
		return err
	}
	e.mu.Lock()
	d := e.drivers[name]
	e.mu.Unlock()
	if d != nil {
		d.poke()
	}
	return nil
}

// Cancel stops an evaluation. It returns at the end of all runs at work, or, where that takes longer than
// Config.CancelPatience, with the evaluation as one that is being cancelled: no run begins after Cancel has returned.
// It therefore waits until the driver of the evaluation, here or on another replica, has journaled the cancel. An
// evaluation of this replica without a driver is not waited for: its next driver reads the inbox before it begins a
// run. An evaluation that has ended is returned unchanged. While the store is away Cancel retries, until ctx ends.
func (e *Engine) Cancel(ctx context.Context, name, requestID, reason string) (*State, error) {
	if requestID == "" {
		requestID = "cancel-" + newID()
	}
	for {
		s, err := e.cancelOnce(ctx, name, requestID, reason)
		if !rpcerr.StoreAway(err) || retry.Sleep(ctx, retryPause) != nil {
			return s, err
		}
	}
}

func (e *Engine) cancelOnce(ctx context.Context, name, requestID, reason string) (*State, error) {
	sub := e.deps.Journals.Subscribe(name)
	defer sub.Close()
	s, err := e.State(ctx, name)
	if err != nil || s.Ended() {
		return s, err
	}
	if err := e.command(ctx, name, requestID, command{Type: commandCancel, Reason: reason}); err != nil {
		return nil, err
	}
	patience := time.NewTicker(e.cfg.CancelPatience) // Again and again: a driver may end without an append.
	defer patience.Stop()
	for over := false; ; {
		driven, err := e.driven(ctx, name) // Before the state: a driver that has ended since may have left it changed.
		if err != nil {
			return nil, err
		}
		if s, err = e.State(ctx, name); err != nil || s.Ended() {
			return s, err
		}
		if over && (s.Cancel != nil || s.TooNew || !driven) {
			return s.cancelling(reason), nil
		}
		select {
		case <-sub.C:
		case <-patience.C:
			over = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// driven reports whether a driver may begin runs of an evaluation without having read its inbox. The journal of another
// replica counts as driven: should that replica be dead, a live one adopts the journal.
func (e *Engine) driven(ctx context.Context, name string) (bool, error) {
	head, err := e.open(ctx, name)
	if err != nil {
		return false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.drivers[name] != nil || head.Owner != e.deps.Replica, nil
}

// Resume continues an evaluation that has ended and has samples that are not done: it was cancelled or failed, or its
// rule let samples fail. An evaluation at work is returned unchanged. An evaluation with nothing left to do is an
// error: the caller would take its old results for new ones.
func (e *Engine) Resume(ctx context.Context, name string) (*State, error) {
	head, err := e.open(ctx, name)
	if err != nil {
		return nil, err
	}
	d, err := e.load(ctx, head)
	if err != nil {
		return nil, err
	}
	if d.state.Cancel != nil {
		return nil, rpcerr.JournalFenced(head.Epoch, "%s is being cancelled, and some of its samples have not ended; resume it when they have", name)
	}
	if !d.state.Ended() {
		return d.state, nil
	}
	if d.state.Eval.GetState() == agentv1.EvalState_EVAL_STATE_SUCCEEDED && !slices.ContainsFunc(d.state.Slots, func(s Slot) bool { return s.undone() }) {
		return nil, rpcerr.RunFinished(name, "SUCCEEDED", "%s has succeeded and all its samples are done, so there is nothing to resume; make a new evaluation to run it again", name)
	}
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	if err := d.append(ctx, nil, &agentv1.Event{Critical: true, Kind: &agentv1.Event_EvalStateChanged{EvalStateChanged: &agentv1.EvalStateChanged{
		State: agentv1.EvalState_EVAL_STATE_RUNNING, Reason: "resumed",
	}}}); err != nil {
		if errors.Is(err, journal.ErrFenced) {
			return nil, rpcerr.JournalFenced(head.Epoch, "%s was changed by another call; try again", name)
		}
		return nil, err
	}
	e.drive(d) //nolint:contextcheck // A driver outlives the call that starts it.
	return e.State(ctx, name)
}

// Update changes tags, metadata or the number of samples at work.
func (e *Engine) Update(ctx context.Context, name string, u Update, reason string) (*State, error) {
	s, err := e.State(ctx, name)
	if err != nil {
		return nil, err
	}
	if s.Ended() {
		return nil, rpcerr.RunFinished(name, strings.TrimPrefix(s.Eval.GetState().String(), "EVAL_STATE_"), "%s has ended; only one at work can be changed", name)
	}
	sub := e.deps.Journals.Subscribe(name)
	defer sub.Close()
	id := "update-" + newID()
	if err := e.command(ctx, name, id, command{Type: commandUpdate, Reason: reason, Update: &u}); err != nil {
		return nil, err
	}
	for {
		taken, err := e.deps.Journals.Taken(ctx, name, id)
		if err != nil {
			return nil, err
		}
		if taken > 0 {
			return e.State(ctx, name)
		}
		select {
		case <-sub.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// load makes the driver of an evaluation from its journal. What else the driver needs, [driver.prepare] reads.
func (e *Engine) load(ctx context.Context, head journal.Head) (*driver, error) {
	state := &State{} // a driver's own, which it changes
	if err := e.folds.follow(ctx, head, state); err != nil {
		return nil, err
	}
	name, err := resource.Parse("name", head.Name, "evals")
	if err != nil {
		return nil, err
	}
	return &driver{engine: e, project: name.Project, head: head, state: state, strangers: map[string]struct{}{}, wake: make(chan struct{}, 1)}, nil
}

// drive starts a driver's goroutine, unless the engine is closed or the evaluation has a driver that began no earlier in
// the journal. One that began earlier is replaced. Of an earlier epoch it can write no more: an evaluation may be resumed
// while the start adopts the open journals. Of the same epoch it has journaled the end, after which the evaluation was
// resumed.
func (e *Engine) drive(d *driver) {
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
	now := &atWork{driver: d, began: d.head, stop: stop}
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

// bound is how many samples of an evaluation may be at work.
func (e *Engine) bound(spec *agentv1.EvalSpec) int {
	switch {
	case spec.MaxSamples != nil:
		return int(spec.GetMaxSamples())
	case len(spec.GetSandboxes()) > 0:
		return min(e.cfg.MaxSamples, 2*runtime.NumCPU())
	}
	return e.cfg.MaxSamples
}

// rowOf is what lists show of an evaluation.
func rowOf(s *State) journal.Row {
	view, _ := proto.Marshal(s.Eval) // A message of ours always marshals.
	return journal.Row{Kind: journal.KindEval, State: int32(s.Eval.GetState()), Done: s.Ended(), View: view}
}

// FoldRow makes the row of an evaluation from its journal alone. For a journal that cannot be read it returns the row of
// a failed evaluation with the error.
func FoldRow(head journal.Head, events iter.Seq2[*agentv1.Event, error]) (journal.Row, error) {
	s := &State{}
	for event, err := range events {
		if err != nil {
			if s.Eval == nil {
				s.Eval = &agentv1.Eval{Name: head.Name, Progress: &agentv1.EvalProgress{}}
			}
			s.Eval.State, s.Eval.Error = agentv1.EvalState_EVAL_STATE_FAILED, journal.RowError()
			return rowOf(s), err
		}
		s.Apply(event)
	}
	return rowOf(s), nil
}

// newEvent sets what every event of an evaluation has.
func newEvent(seq int64, e *agentv1.Event) *agentv1.Event {
	e.Seq, e.Time, e.Actor = seq, timestamppb.New(time.Now()), "system"
	return e
}

// requestDigest hashes a specification as it was asked for.
func requestDigest(spec *agentv1.EvalSpec) []byte {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	sum := sha256.Sum256(b)
	return sum[:]
}

// newID makes an id that sorts by nothing and collides with nothing: 80 random bits in lower-case base 32.
func newID() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // Never fails.
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}
