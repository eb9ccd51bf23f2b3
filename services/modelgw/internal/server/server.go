// Package server implements the gRPC services of the model gateway over the pipeline, the ledger of effects and the registry of providers.
package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/cache"
	"github.com/evalfleet/evalfleet/pkg/effect"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/follow"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Deps are what the services stand on. All but Prices and Blobs are required.
type Deps struct {
	Registry *provider.Registry
	// Pipeline answers calls.
	Pipeline generate.Func
	// Runner makes calls with a key happen once. Its errors must be encoded by [rpcerr.Encode] and [rpcerr.Decode].
	Runner  *effect.Runner
	Ledger  effect.Ledger
	Cache   cache.Cache
	Limiter limit.Limiter
	Budgets *budget.Memory
	// Blobs reads a body of a project; nil where there is no blob store.
	Blobs  func(ctx context.Context, project, hash string) ([]byte, error)
	Prices generate.Prices
}

// Server implements ModelService, CacheService, BatchService and LimitService.
type Server struct {
	modelv1.UnimplementedModelServiceServer
	modelv1.UnimplementedCacheServiceServer
	modelv1.UnimplementedBatchServiceServer
	modelv1.UnimplementedLimitServiceServer

	Deps
	streams follow.Streams
	retries retries
}

// New returns the server.
func New(d Deps) *Server { return &Server{Deps: d} }

// Register adds the services to a server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	modelv1.RegisterModelServiceServer(r, s)
	modelv1.RegisterCacheServiceServer(r, s)
	modelv1.RegisterBatchServiceServer(r, s)
	modelv1.RegisterLimitServiceServer(r, s)
}

// Passing says that a failure means no more than "not now": nothing has happened, and the same key may be used again.
func Passing(err error) bool {
	_, notBegun := errors.AsType[*notBegunError](err)
	return notBegun || rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CONNECTION_QUEUE_FULL) ||
		rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED)
}

// notBegunError marks a failure of a call of which nothing has reached the pipeline.
type notBegunError struct{ error }

func (e *notBegunError) Unwrap() error { return e.error }

// cancelled is the error of a call that was cancelled, with what is known of it: where its time went, and its failed
// attempts.
func cancelled(err error, key effect.Key) error {
	told := rpcerr.EffectCancelled(key.ID, "the call with request_id %q was cancelled", key.ID)
	if end, ok := rpcerr.As(err); ok {
		told.Details = end.Details
	}
	return told
}

// effectError says in the errors of the platform what became of a key.
func effectError(err error, key effect.Key) error {
	var elsewhere *effect.ElsewhereError
	var panicked *effect.PanicError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, effect.ErrInvalidKey):
		return rpcerr.InvalidField("request_id", "%v", err)
	case errors.Is(err, effect.ErrContentMismatch):
		return rpcerr.RequestIDReused(key.ID, "request_id %q was used for another request", key.ID)
	case errors.Is(err, effect.ErrUnknown), errors.Is(err, effect.ErrReleased):
		return rpcerr.EffectUnknown(key.ID, "nothing is kept under request_id %q", key.ID)
	case errors.Is(err, effect.ErrCancelled):
		return cancelled(err, key)
	case errors.Is(err, effect.ErrIndeterminate), errors.Is(err, effect.ErrLost):
		return rpcerr.EffectIndeterminate(key.ID, "every process that made the call with request_id %q died before it had an answer", key.ID)
	case errors.Is(err, effect.ErrDraining):
		return rpcerr.ServiceUnavailable("modelgw", time.Second, "the model gateway is stopping")
	case errors.As(err, &elsewhere):
		return rpcerr.ServiceUnavailable("modelgw", time.Second, "the call with request_id %q runs at another replica", key.ID)
	case errors.As(err, &panicked):
		return rpcerr.Internal("a model call")
	default:
		return err
	}
}
