// Package call makes model calls: it validates and prepares a request, executes it in the pipeline, once for each key,
// and returns the answer whole or as a stream. The gRPC services and the vendors' endpoints both use it.
package call

import (
	"context"
	"log/slog"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/call/answerlog"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prefixcache"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/settings"
)

// Deps are the dependencies of calls. All but Blobs are required.
type Deps struct {
	Registry *provider.Registry
	// Pipeline answers calls.
	Pipeline generate.Func
	// Counting answers calls that ask for a number of tokens.
	Counting generate.Func
	// Effects executes calls with a key once.
	Effects *effectrpc.Owner
	// Batches transports calls in batches.
	Batches *batch.Batcher
	Budgets *budget.Ledger
	// Settings are the prices and the fallbacks.
	Settings *settings.Current
	// Memory keeps conversations for calls that continue them.
	Memory *prefixcache.Cache
	// Blobs reads a body of a project; nil without a blob store.
	Blobs func(ctx context.Context, project, hash string) ([]byte, error)
	// Logger logs.
	Logger *slog.Logger
}

// Calls makes model calls. It is safe for concurrent use.
type Calls struct {
	deps    Deps
	streams answerlog.Streams
	retries retries
}

// New returns calls.
func New(deps Deps) *Calls { return &Calls{deps: deps} }

// Retries are the calls with a key that wait for another attempt.
func (c *Calls) Retries() *lastvalue.Map[effect.Key, *effectv1.Note] { return &c.retries.Map }

// NoteBatched shows that a call with a key waits for a batch; nil shows that it does no more.
func (c *Calls) NoteBatched(key effect.Key, note *effectv1.Note) {
	if note == nil {
		c.retries.Clear(key)
	} else {
		c.retries.Post(key, note)
	}
}

// Generate answers a request or, with its ValidateOnly, returns how the call would be made. A request with a key
// attaches to the call of that key.
func (c *Calls) Generate(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.GenerateResponse, error) {
	w, err := c.plan(r)
	if err != nil {
		return nil, err
	}
	if r.GetValidateOnly() {
		return c.validate(ctx, w)
	}
	return do(ctx, c, w, nil, c.generated)
}

// Emit takes one event of an answer.
type Emit = func(*modelv1.StreamGenerateResponse) error

// Stream is Generate as a stream, with the completed answer last. emit is called from one goroutine; when it fails, so
// does Stream.
func (c *Calls) Stream(ctx context.Context, r *modelv1.GenerateRequest, emit Emit) error {
	w, err := c.plan(r)
	if err != nil {
		return err
	}
	return c.stream(ctx, w, emit)
}

// Answer is Generate for a client who waits on a connection of its own: the call fails if the wait before another
// attempt would be longer than maxWait. Its media may be addresses which the provider fetches.
func (c *Calls) Answer(ctx context.Context, r *modelv1.GenerateRequest, maxWait time.Duration) (*modelv1.GenerateResponse, error) {
	w, err := c.planWith(r, true)
	if err != nil {
		return nil, err
	}
	w.call.MaxWait = maxWait
	return do(ctx, c, w, nil, c.generated)
}

// Follow is Answer as a stream, for a client that cannot discard received pieces: a call without a key fails with the
// first failure after a piece of its answer. emit is called from one goroutine; when it fails, so does the call.
func (c *Calls) Follow(ctx context.Context, r *modelv1.GenerateRequest, maxWait time.Duration, emit Emit) error {
	w, err := c.planWith(r, true)
	if err != nil {
		return err
	}
	w.call.Committed, w.call.MaxWait = w.key.IsZero(), maxWait
	return c.stream(ctx, w, emit)
}
