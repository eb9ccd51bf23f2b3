// Package effectrpc is shared by the services that own effects: an [Owner] executes keyed calls once, stores their
// results until they are released, and reports every failure of the effect protocol with the same reason in each
// service.
package effectrpc

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// retryAfter is when a caller should try again whose call another process has, or that came while this one stops.
const retryAfter = time.Second

// Config makes an [Owner]. Ledger, Owner and Service are required.
type Config struct {
	// Service is the name of the service in errors, such as `modelgw`.
	Service string
	// Noun is the term for one effect in errors. Empty is `call`.
	Noun string
	// Ledger keeps claims and results.
	Ledger effect.Ledger
	// Owner names this process in the ledger from its start to its end. No earlier or later process has the name.
	Owner string
	// Alive reports whether another owner still runs. Nil: none does.
	Alive func(ctx context.Context, owner string) (bool, error)
	// MaxReissues is that of [effect.Config].
	MaxReissues int
	// CancelGrace is that of [effect.Config].
	CancelGrace time.Duration
	// Logger gets panics and failures of the ledger.
	Logger *slog.Logger
}

// Owner owns the effects of one service. It is safe for concurrent use.
type Owner struct {
	runner        *effect.Runner
	ledger        effect.Ledger
	service, noun string
	log           *slog.Logger
}

// New returns an owner. It starts nothing: [Owner.Sweep] keeps its ledger small, and [Owner.Drain] ends it.
func New(cfg Config) (*Owner, error) {
	runner, err := effect.New(effect.Config{
		Ledger: cfg.Ledger, Owner: cfg.Owner, Alive: cfg.Alive, MaxReissues: cfg.MaxReissues, CancelGrace: cfg.CancelGrace,
		EncodeError: rpcerr.Encode, DecodeError: rpcerr.Decode, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	if cfg.Noun == "" {
		cfg.Noun = "call"
	}
	return &Owner{runner: runner, ledger: cfg.Ledger, service: cfg.Service, noun: cfg.Noun, log: cfg.Logger}, nil
}

// Do is [effect.Runner.Do] with the errors of [Owner.Error].
func (o *Owner) Do(ctx context.Context, req effect.Request, fn effect.Func) (effect.Result, error) {
	result, err := o.runner.Do(ctx, req, fn)
	return result, o.Error(req.Key, err)
}

// Attach is [effect.Runner.Attach] with the errors of [Owner.Error].
func (o *Owner) Attach(ctx context.Context, key effect.Key) (effect.Result, error) {
	result, err := o.runner.Attach(ctx, key)
	return result, o.Error(key, err)
}

// Cancel prevents an effect, or stops it. It reports whether the effect had ended before, and then changes nothing.
func (o *Owner) Cancel(ctx context.Context, key effect.Key) (ended bool, err error) {
	before, err := o.runner.Cancel(ctx, key)
	return before.State.Finished() || before.State == effect.Released, o.Error(key, err)
}

// Release drops results that their caller has made durable. It may be repeated.
func (o *Owner) Release(ctx context.Context, keys ...effect.Key) error {
	return o.ledger.Release(ctx, keys...)
}

// ReleaseRuns drops the results of all effects of runs of a project, and cancels those that would start. Runs are ids.
func (o *Owner) ReleaseRuns(ctx context.Context, project string, runs ...string) error {
	return o.ledger.ReleaseRuns(ctx, project, runs...)
}

// Sweep forgets old results until ctx ends.
func (o *Owner) Sweep(ctx context.Context) { effect.Sweep(ctx, o.ledger, o.log) }

// Drain is [effect.Runner.Drain].
func (o *Owner) Drain(ctx context.Context) error { return o.runner.Drain(ctx) }

// Error converts an error of the effect protocol to the platform's error, which wraps err. Other errors are returned
// unchanged: they are the effect's own, or the ledger's.
func (o *Owner) Error(key effect.Key, err error) error {
	if fault := o.fault(key, err); fault != nil {
		return fault.WithCause(err)
	}
	return err
}

// fault is the error of the platform for one of the effect protocol; nil for others.
func (o *Owner) fault(key effect.Key, err error) *rpcerr.Error {
	switch {
	case errors.Is(err, effect.ErrInvalidKey):
		return rpcerr.InvalidField("request_id", "%v", err)
	case errors.Is(err, effect.ErrContentMismatch):
		return rpcerr.RequestIDReused(key.ID, "request_id %q was used for a %s with other content; use a new one", key.ID, o.noun)
	case errors.Is(err, effect.ErrUnknown):
		return rpcerr.EffectUnknown(key.ID, "no %s is known under request_id %q", o.noun, key.ID)
	case errors.Is(err, effect.ErrReleased):
		return rpcerr.EffectUnknown(key.ID, "the result of the %s with request_id %q was released", o.noun, key.ID)
	case errors.Is(err, effect.ErrCancelled):
		fault := rpcerr.EffectCancelled(key.ID, "the %s with request_id %q was cancelled", o.noun, key.ID)
		if end, ok := rpcerr.As(err); ok { // The error with which its work ended.
			fault.Details = end.Details
		}
		return fault
	case errors.Is(err, effect.ErrIndeterminate):
		return rpcerr.EffectIndeterminate(key.ID, "every process that ran the %s with request_id %q ended before there was a result", o.noun, key.ID)
	case errors.Is(err, effect.ErrLost):
		return rpcerr.EffectIndeterminate(key.ID, "the process that ran the %s with request_id %q ended; repeat the request to settle it", o.noun, key.ID)
	case errors.Is(err, effect.ErrDraining):
		return rpcerr.ServiceUnavailable(o.service, retryAfter, "%s is stopping", o.service)
	case errors.Is(err, effect.ErrNotOwner):
		return rpcerr.ServiceUnavailable(o.service, retryAfter, "another process of %s took over the %s with request_id %q", o.service, o.noun, key.ID)
	}
	if superseded, ok := errors.AsType[*effect.SupersededError](err); ok {
		return rpcerr.NotOwner(key.ID, superseded.Epoch, "the run of the %s with request_id %q has another owner since, of epoch %d; forget the run, or own it under a newer one", o.noun, key.ID, superseded.Epoch)
	}
	if elsewhere, ok := errors.AsType[*effect.ElsewhereError](err); ok {
		return rpcerr.ServiceUnavailable(o.service, retryAfter, "the %s with request_id %q runs in another process of %s, %s", o.noun, key.ID, o.service, elsewhere.Owner)
	}
	if _, ok := errors.AsType[*effect.PanicError](err); ok {
		return rpcerr.Internal("%s: the %s with request_id %q: %v", o.service, o.noun, key.ID, err)
	}
	return nil
}

// Hash is the hash of a request, in one message or several: without its key, its deadline and its origin. Two requests
// with one key must have one hash.
func Hash(contents ...proto.Message) (effect.Hash, error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	encoded := (*buffer)[:0]
	for _, content := range contents {
		encoded = binary.AppendUvarint(encoded, uint64(proto.Size(content)))
		var err error
		if encoded, err = (proto.MarshalOptions{Deterministic: true}).MarshalAppend(encoded, content); err != nil {
			return effect.Hash{}, rpcerr.InvalidRequest("the request cannot be encoded: %w", err)
		}
	}
	*buffer = encoded
	return sha256.Sum256(encoded), nil
}

// buffers hold requests while they are hashed, which have at most the size of a message.
var buffers = sync.Pool{New: func() any { return new([]byte) }}
