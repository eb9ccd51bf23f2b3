package effect

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// execution is an effect in flight in this process, from before its claim until its outcome is in the ledger.
type execution struct {
	hash   Hash
	again  bool            // the work may be repeated
	epoch  int64           // the newest of its callers; guarded by Runner.mu
	work   context.Context // of the work; the ledger's calls outlive it
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when result and err are final
	result Result
	err    error
}

// wait returns the outcome, or ctx's error when that ends first.
func (e *execution) wait(ctx context.Context) (Result, error) {
	select {
	case <-e.done:
		return e.result, e.err
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
}

// join returns the execution of a request, and starts it if there is none.
func (r *Runner) join(ctx context.Context, req Request, fn Func) (e *execution, begun bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.running[req.Key]; e != nil {
		if e.hash != req.Hash && !req.Unique {
			return nil, false, fmt.Errorf("%w: %v", ErrContentMismatch, req.Key)
		}
		return e, false, nil
	}
	if r.draining {
		return nil, false, ErrDraining
	}
	ctx = context.WithoutCancel(ctx)
	e = &execution{hash: req.Hash, again: req.Reissue, epoch: req.Epoch, done: make(chan struct{})}
	e.work, e.cancel = context.WithCancelCause(ctx)
	r.running[req.Key] = e
	done := offload.Keep(ctx) // The work may outlive the call that asked for it.
	r.working.Go(func() {
		defer done()
		defer e.cancel(nil)
		res, err := r.execute(ctx, e, req, fn)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.settle(req.Key, e, res, err)
	})
	return e, true, nil
}

// fence compares the epoch of a request with that of the execution that it joins, and has the ledger know a newer one.
func (r *Runner) fence(ctx context.Context, e *execution, req Request) error {
	r.mu.Lock()
	known := e.epoch
	r.mu.Unlock()
	switch {
	case req.Epoch == 0 || req.Epoch == known:
		return nil
	case req.Epoch < known:
		return &SupersededError{Key: req.Key, Epoch: known}
	}
	if err := r.cfg.Ledger.Fence(ctx, req.Key, req.Epoch); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.epoch = max(e.epoch, req.Epoch)
	return nil
}

func (r *Runner) find(key Key) *execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[key]
}

// settle makes an outcome final and notifies all waiting callers, unless there is one already. r.mu is held.
func (r *Runner) settle(key Key, e *execution, res Result, err error) {
	select {
	case <-e.done:
		return
	default:
	}
	e.result, e.err = res, err
	close(e.done)
	delete(r.running, key)
}

// execute claims the key and does the work, or finds the existing outcome.
func (r *Runner) execute(ctx context.Context, e *execution, req Request, fn Func) (Result, error) {
	for {
		rec, started, err := r.claim(ctx, req)
		if err != nil {
			return Result{}, err
		}
		switch {
		case !started && rec.State != Running:
			return r.kept(rec)
		case !started || rec.Yields > 0 && !req.Reissue:
			rec, err = r.takeOver(ctx, req, rec)
		}
		switch {
		case errors.Is(err, ErrNotOwner):
			continue // another process was faster; read its record
		case err != nil:
			return Result{Reissued: rec.Lost()}, err
		}
		return r.perform(ctx, e, req, rec, fn)
	}
}

// claim claims the key, under the hash that it was claimed with before where the key is unique.
func (r *Runner) claim(ctx context.Context, req Request) (rec Record, started bool, err error) {
	rec, started, err = r.cfg.Ledger.Claim(ctx, req.Key, req.Hash, r.cfg.Owner, req.Epoch)
	if !req.Unique || !errors.Is(err, ErrContentMismatch) {
		return rec, started, err
	}
	if rec, err = r.cfg.Ledger.Lookup(ctx, req.Key); err != nil {
		return rec, false, err
	}
	return r.cfg.Ledger.Claim(ctx, req.Key, rec.Hash, r.cfg.Owner, req.Epoch)
}

// takeOver gets the claim of an owner that died, or settles the effect when its work may not be repeated.
func (r *Runner) takeOver(ctx context.Context, req Request, rec Record) (Record, error) {
	switch alive, err := r.alive(ctx, rec.Owner); {
	case err != nil:
		return rec, err
	case alive:
		return rec, &ElsewhereError{Owner: rec.Owner}
	}
	if req.Reissue && rec.Reissues < r.cfg.MaxReissues {
		return r.cfg.Ledger.Reclaim(ctx, req.Key, rec.Owner, r.cfg.Owner)
	}
	if err := r.cfg.Ledger.Finish(ctx, req.Key, rec.Owner, Outcome{State: Indeterminate}); err != nil {
		return rec, err
	}
	return rec, fmt.Errorf("%w: %v", ErrIndeterminate, req.Key)
}

// alive reports whether another process runs the effects of owner. An effect of this process that is not in r.running
// is as lost as that of a dead process.
func (r *Runner) alive(ctx context.Context, owner string) (bool, error) {
	if owner == r.cfg.Owner {
		return false, nil
	}
	return r.cfg.Alive(ctx, owner)
}

// perform does the work under a claim and keeps its outcome.
//
//nolint:contextcheck // the work's context is ctx with an end of its own, made in join
func (r *Runner) perform(ctx context.Context, e *execution, req Request, rec Record, fn Func) (Result, error) {
	work, cancel := bound(e.work, req.Timeout)
	defer cancel()
	body, err := []byte(nil), context.Cause(work) // Cancel may have come during the claim
	if err == nil {
		body, err = r.call(work, fn, Attempt{Key: req.Key, Reissued: rec.Lost()})
	}
	result := Result{Reissued: rec.Lost()}
	switch {
	case err == nil:
		rec.State, rec.Body = Done, body
	case errors.Is(context.Cause(e.work), ErrDraining), errors.Is(err, ErrDraining):
		return result, errors.Join(err, r.yield(ctx, req))
	case IsNotStarted(err):
		return result, errors.Join(err, r.write(ctx, req.Key, func() error { return r.cfg.Ledger.Drop(ctx, req.Key, r.cfg.Owner) }))
	case rpcerr.Transient(err) && req.Reissue:
		return result, errors.Join(err, r.write(ctx, req.Key, func() error { return r.cfg.Ledger.Yield(ctx, r.cfg.Owner, req.Key) }))
	case rpcerr.Transient(err):
		r.cfg.Logger.ErrorContext(ctx, "an effect that may not be repeated failed as something was away; whether it happened is unknown", "key", req.Key, "error", err)
		rec.State = Indeterminate
	default:
		rec.State, rec.Body = Failed, r.cfg.EncodeError(err)
	}
	switch kept := r.keep(ctx, req.Key, Outcome{State: rec.State, Body: rec.Body}); {
	case errors.Is(kept, ErrCancelled) && err != nil:
		return result, fmt.Errorf("%w: %w", kept, err)
	case kept != nil:
		return result, kept
	}
	if req.Kept != nil {
		req.Kept()
	}
	result, err = r.kept(rec)
	result.Joined = false
	return result, err
}

// yield gives the claim of work that was cut short to the next caller. Work that may not be repeated keeps its claim,
// which then ends as indeterminate.
func (r *Runner) yield(ctx context.Context, req Request) error {
	if !req.Reissue {
		return nil
	}
	if err := r.cfg.Ledger.Yield(ctx, r.cfg.Owner, req.Key); err != nil {
		r.cfg.Logger.ErrorContext(ctx, "claim not given back; it counts as lost", "key", req.Key, "error", err)
		return fmt.Errorf("effect: claim of %v not given back: %w", req.Key, err)
	}
	return nil
}

// keep brings an outcome into the ledger.
func (r *Runner) keep(ctx context.Context, key Key, outcome Outcome) error {
	return r.write(ctx, key, func() error { return r.cfg.Ledger.Finish(ctx, key, r.cfg.Owner, outcome) })
}

// write ends a claim in the ledger. The work is done and perhaps paid for, so a failing ledger is retried for a while.
func (r *Runner) write(ctx context.Context, key Key, end func() error) error {
	deadline := time.Now().Add(r.cfg.KeepTimeout)
	for backoff := (retry.Backoff{First: 50 * time.Millisecond, Max: 2 * time.Second}); ; {
		err := end()
		if err == nil || errors.Is(err, ErrCancelled) {
			return err
		}
		r.cfg.Logger.ErrorContext(ctx, "effect outcome not kept", "key", key, "error", err)
		pause := backoff.Next()
		away := rpcerr.StoreAway(err) // then it is retried without end
		if errors.Is(err, ErrNotOwner) || errors.Is(err, ErrUnknown) || !away && time.Now().Add(pause).After(deadline) {
			return fmt.Errorf("effect: outcome of %v not kept: %w", key, err)
		}
		select {
		case <-time.After(pause):
		case <-r.cut:
			return fmt.Errorf("effect: outcome of %v not kept: %w", key, err)
		}
	}
}

// kept turns a record that is not running into an outcome.
func (r *Runner) kept(rec Record) (Result, error) {
	res := Result{Reissued: rec.Lost(), Joined: true}
	switch rec.State {
	case Done:
		res.Body = rec.Body
		return res, nil
	case Failed:
		return res, r.cfg.DecodeError(rec.Body)
	case Indeterminate:
		return res, fmt.Errorf("%w: %v", ErrIndeterminate, rec.Key)
	case Cancelled:
		return res, fmt.Errorf("%w: %v", ErrCancelled, rec.Key)
	case Released:
		return res, fmt.Errorf("%w: %v", ErrReleased, rec.Key)
	default: // dropped: as if it had never been
		return res, fmt.Errorf("%w: %v", ErrUnknown, rec.Key)
	}
}

// PanicError is the error of work that panicked.
type PanicError struct {
	Value any
}

// Error implements error. The value and the stack are only in the log.
func (e *PanicError) Error() string { return "effect: internal error" }

// call runs fn and turns a panic into an error.
func (r *Runner) call(ctx context.Context, fn Func, attempt Attempt) (body []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.ErrorContext(ctx, "effect panicked", "key", attempt.Key, "panic", p, "stack", string(debug.Stack()))
			body, err = nil, &PanicError{Value: p}
		}
	}()
	return fn(ctx, attempt)
}

// bound is context.WithTimeout, with none for zero.
func bound(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}
