// Package server implements the gRPC services of the model gateway: names, principals and messages. Package call, the
// registry of providers, the cache and the limits do the work.
package server

import (
	"sync"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/cache"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/call"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/settings"
)

// Deps are the dependencies of the services. All are required.
type Deps struct {
	Registry *provider.Registry
	Calls    *call.Calls
	// Effects executes the calls of Calls that have a key.
	Effects *effectrpc.Owner
	// Batches has the calls of Calls that travel in batches.
	Batches *batch.Batcher
	Cache   cache.Cache
	Limiter limit.Limiter
	Budgets *budget.Ledger
	// Settings are the prices, the accounts and what is known of models.
	Settings *settings.Current
}

// Server implements ModelService, CacheService, BatchService and LimitService.
type Server struct {
	modelv1.UnimplementedModelServiceServer
	modelv1.UnimplementedCacheServiceServer
	modelv1.UnimplementedBatchServiceServer
	modelv1.UnimplementedLimitServiceServer

	Deps

	// retuning is held while a pool or a budget is compared with an etag and changed.
	retuning sync.Mutex
}

// New returns the server.
func New(d Deps) *Server { return &Server{Deps: d} }

// Register adds the services to a server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	modelv1.RegisterModelServiceServer(r, s)
	modelv1.RegisterCacheServiceServer(r, s)
	modelv1.RegisterBatchServiceServer(r, s)
	modelv1.RegisterDetachedServiceServer(r, modelv1.UnimplementedDetachedServiceServer{})
	modelv1.RegisterLimitServiceServer(r, s)
}
