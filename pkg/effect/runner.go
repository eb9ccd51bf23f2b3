package effect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
)

var (
	// ErrIndeterminate is the outcome of an effect whose owner died while it ran and which may not be repeated.
	ErrIndeterminate = errors.New("effect: owner died while the effect ran; whether it happened is unknown")
	// ErrLost is returned by [Runner.Attach] for an effect whose owner died while it ran. [Runner.Do] settles it.
	ErrLost = errors.New("effect: owner died while the effect ran")
	// ErrDraining is returned for work that would start while the runner is stopping, and for work that it had to cut
	// short. The claim of repeatable work is then yielded to a successor.
	ErrDraining = errors.New("effect: stopping")
)

// ElsewhereError is returned for an effect that another live owner runs. The call belongs there.
type ElsewhereError struct {
	Owner string
}

// Error implements error.
func (e *ElsewhereError) Error() string { return "effect: runs at " + e.Owner }

// DefaultMaxReissues is the default number of repetitions of an effect that allows them, after its owner died.
const DefaultMaxReissues = 5

// cutGrace is how long [Runner.Drain] waits for work that it cuts short to notice, before it yields the claims itself.
const cutGrace = 2 * time.Second

// yieldTimeout bounds the yielding of those claims.
const yieldTimeout = 5 * time.Second

// Config makes a [Runner].
type Config struct {
	// Ledger keeps claims and results. Required.
	Ledger Ledger
	// Owner names this process from its start to its end; no earlier or later process may have had the name. Required.
	Owner string
	// Alive reports whether another owner still runs, such as Alive of package replica. Nil: none does, which is true
	// if one process has the ledger to itself.
	Alive func(ctx context.Context, owner string) (bool, error)
	// MaxReissues bounds the repetitions of an effect that allows them, after its owner died. Effects that an owner
	// yields as it stops do not count. Zero is [DefaultMaxReissues].
	MaxReissues int
	// EncodeError and DecodeError convert the work's error to its stored form and back; every caller gets the decoded
	// form, the first one too. Nil for both stores the text.
	EncodeError func(error) []byte
	DecodeError func([]byte) error
	// KeepTimeout bounds how long the store of a finished result is retried at a failing ledger, before it is given up
	// and the claim left as lost. Retries at an unavailable ledger (STORE_UNAVAILABLE) are unbounded. Zero is 30s.
	KeepTimeout time.Duration
	// CancelGrace bounds how long callers that wait for cancelled work wait for the work's error, which is then part of
	// theirs. Zero: they get [ErrCancelled] at once.
	CancelGrace time.Duration
	// Logger gets panics and failures of the ledger. Nil discards them.
	Logger *slog.Logger
}

// Func does the work of one effect. With a key ctx is not the caller's: it ends by the request's timeout, by Cancel and
// by Drain. attempt reports whether the work may have been done before, in part.
//
// An error is stored as the outcome, with these exceptions. After one marked by [NotStarted] the claim is given back.
// Work that fails with [ErrDraining] was cut short: a successor continues it. The same holds after an error for which
// [rpcerr.Transient] returns true, if the work may be repeated; other work is then indeterminate.
type Func func(ctx context.Context, attempt Attempt) ([]byte, error)

// Attempt describes one execution of an effect.
type Attempt struct {
	// Key is the zero key for work without one.
	Key Key
	// Reissued counts the earlier executions without an outcome: lost with their owners, or cut short by their end.
	Reissued int
}

// Request names one effect.
type Request struct {
	// Key may be zero: the work then runs under the caller's context and leaves no trace.
	Key Key
	// Hash is that of the content. A key is good for one content.
	Hash Hash
	// Unique means that the key names one content only, as [Key.OfRun] reports: a claim with another hash is of the
	// same content, hashed by another version.
	Unique bool
	// Epoch is that under which the caller owns the run that gave the key; 0 for none.
	Epoch int64
	// Timeout bounds the work, not the wait for it. Zero: none.
	Timeout time.Duration
	// Reissue allows repeating the work, up to Config.MaxReissues times, if its owner died while it ran. Without it
	// such an effect ends as indeterminate.
	Reissue bool
	// Kept is called once the outcome of this request's own execution is in the ledger, before any caller receives it.
	// It lets the holder of an outcome release it. Nil: no call.
	Kept func()
}

// Result is the outcome of an effect.
type Result struct {
	// Body is the work's result. Callers share it and must not modify it.
	Body []byte
	// Reissued counts the executions that brought no outcome. It is also set beside an outcome that is an error.
	Reissued int
	// Joined reports that this call did not begin the execution: another had, or its result was kept already.
	Joined bool
}

// Runner executes the effects of one process over a ledger. Its methods are safe for concurrent use.
type Runner struct {
	cfg     Config
	working sync.WaitGroup

	mu       sync.Mutex
	running  map[Key]*execution
	draining bool

	cut     chan struct{} // closed when Drain has lost patience
	cutOnce sync.Once
}

// New returns a runner. It starts nothing; each effect runs on a goroutine of its own, which [Runner.Drain] waits for.
func New(cfg Config) (*Runner, error) {
	if cfg.Ledger == nil || cfg.Owner == "" {
		return nil, errors.New("effect: a runner needs a ledger and an owner")
	}
	if (cfg.EncodeError == nil) != (cfg.DecodeError == nil) {
		return nil, errors.New("effect: a runner needs both of EncodeError and DecodeError, or neither")
	}
	if cfg.EncodeError == nil {
		cfg.EncodeError = func(err error) []byte { return []byte(err.Error()) }
		cfg.DecodeError = func(text []byte) error { return errors.New(string(text)) }
	}
	if cfg.Alive == nil {
		cfg.Alive = func(context.Context, string) (bool, error) { return false, nil }
	}
	if cfg.MaxReissues == 0 {
		cfg.MaxReissues = DefaultMaxReissues
	}
	if cfg.KeepTimeout == 0 {
		cfg.KeepTimeout = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Runner{cfg: cfg, running: make(map[Key]*execution), cut: make(chan struct{})}, nil
}

// Do returns the outcome of an effect; it runs fn unless the outcome exists or is in flight. The execution continues
// when ctx ends; Do then returns ctx's error, and a later call with the key attaches. The result is in the ledger
// before any caller receives it.
//
// An error is the effect's own, decoded, or one of [ErrInvalidKey], [ErrContentMismatch], [ErrCancelled],
// [ErrReleased], [ErrIndeterminate], [ErrDraining], a [*SupersededError], an [*ElsewhereError], or the ledger's, in
// which case the outcome may be lost. Within Config.CancelGrace an [ErrCancelled] also wraps the error with which the
// work ended.
func (r *Runner) Do(ctx context.Context, req Request, fn Func) (Result, error) {
	if req.Key.IsZero() {
		ctx, cancel := bound(ctx, req.Timeout)
		defer cancel()
		body, err := r.call(ctx, fn, Attempt{})
		return Result{Body: body}, err
	}
	if err := req.Key.Validate(); err != nil {
		return Result{}, err
	}
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	for {
		e, begun, err := r.join(ctx, req, fn)
		if err != nil {
			return Result{}, err
		}
		if !begun {
			if err := r.fence(ctx, e, req); err != nil {
				return Result{}, err
			}
		}
		res, err := e.wait(ctx)
		if refused, ok := errors.AsType[*SupersededError](err); ok && !begun && req.Epoch >= refused.Epoch {
			continue // It was an older owner that was refused.
		}
		res.Joined = res.Joined || !begun
		return res, err
	}
}

// Attach waits for an effect that runs in this process, or returns the stored outcome. It starts nothing. Beside the
// errors of Do it returns [ErrUnknown] for a key that was never seen and [ErrLost] for an effect that no process runs.
func (r *Runner) Attach(ctx context.Context, key Key) (Result, error) {
	if err := key.Validate(); err != nil {
		return Result{}, err
	}
	for again := false; ; again = true {
		if e := r.find(key); e != nil {
			res, err := e.wait(ctx)
			res.Joined = true
			return res, err
		}
		rec, err := r.cfg.Ledger.Lookup(ctx, key)
		switch {
		case err != nil:
			return Result{}, err
		case rec.State == Yielded:
			return Result{}, fmt.Errorf("%w: %v", ErrLost, key)
		case rec.State != Running:
			return r.kept(rec)
		}
		switch alive, err := r.alive(ctx, rec.Owner); {
		case err != nil:
			return Result{}, err
		case alive:
			return Result{}, &ElsewhereError{Owner: rec.Owner}
		case again || rec.Owner != r.cfg.Owner:
			return Result{}, fmt.Errorf("%w: %v", ErrLost, key)
		}
		// This process claimed it, and it was not running here a moment ago: it has begun or ended in between.
	}
}

// Cancel stores a tombstone for an effect that is not finished and ends its execution in this process. When it returns
// nil, no work under the key will start. The record is the previous one: it names the owner of an effect that runs
// elsewhere, which must be cancelled there too; it has the result of a finished effect, which stays.
func (r *Runner) Cancel(ctx context.Context, key Key) (Record, error) {
	before, err := r.cfg.Ledger.Cancel(ctx, key)
	if err != nil || before.State.Finished() || before.State == Released {
		return before, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.running[key]; e != nil {
		e.cancel(ErrCancelled)
		if r.cfg.CancelGrace == 0 {
			r.settleCancelled(key, e)
		} else {
			time.AfterFunc(r.cfg.CancelGrace, func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.settleCancelled(key, e)
			})
		}
	}
	return before, nil
}

// settleCancelled ends the waiting for work that was cancelled, unless it has ended itself. r.mu is held.
func (r *Runner) settleCancelled(key Key, e *execution) {
	r.settle(key, e, Result{}, fmt.Errorf("%w: %v", ErrCancelled, key))
}

// Drain refuses new work and waits for work in flight. When ctx ends first it cuts the rest short and yields the claims
// of repeatable work to a successor. It returns an error for other work, whose outcome is now unknown, and for claims
// that it could not yield.
func (r *Runner) Drain(ctx context.Context) error {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.working.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	lost := r.cutShort(ctx)
	grace := time.NewTimer(cutGrace)
	defer grace.Stop()
	select {
	case <-done:
		return lost
	case <-grace.C:
		return errors.Join(lost, r.yieldAll(context.WithoutCancel(ctx)))
	}
}

// cutShort cancels the work in flight, which then yields its claim if it is repeatable; it returns an error for the
// rest.
func (r *Runner) cutShort(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.running) == 0 {
		return nil
	}
	r.cutOnce.Do(func() { close(r.cut) })
	lost := 0
	for _, e := range r.running {
		e.cancel(ErrDraining)
		if !e.again {
			lost++
		}
	}
	r.cfg.Logger.InfoContext(ctx, "effects cut short", "effects", len(r.running), "yielded", len(r.running)-lost)
	if lost == 0 {
		return nil
	}
	return fmt.Errorf("effect: %d effects cut short that may not be repeated: %w", lost, ctx.Err())
}

// yieldAll yields the claims of work that does not notice that it is cut short.
func (r *Runner) yieldAll(ctx context.Context) error {
	r.mu.Lock()
	slow := maps.Clone(r.running)
	r.mu.Unlock()
	var keys []Key
	for key, e := range slow {
		if e.again {
			keys = append(keys, key)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, yieldTimeout)
	defer cancel()
	err := r.cfg.Ledger.Yield(ctx, r.cfg.Owner, keys...)
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, e := range slow {
		r.settle(key, e, Result{}, fmt.Errorf("%w: %v was cut short", ErrDraining, key))
	}
	return err
}
