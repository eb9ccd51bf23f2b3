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
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Deps are the dependencies of the services. All but Prices, Priced and Accounts are required.
type Deps struct {
	Registry *provider.Registry
	Calls    *call.Calls
	// Effects executes the calls of Calls that have a key.
	Effects *effectrpc.Owner
	// Batches has the calls of Calls that travel in batches.
	Batches *batch.Batcher
	Cache   cache.Cache
	Limiter limit.Limiter
	Budgets *budget.Memory
	Prices  generate.Prices
	// Data is what is known of models.
	Data *modeldata.Data
	// Priced reports whether the price of a model is the configuration's; nil means that none is.
	Priced func(model string) bool
	// Accounts are the names of the accounts that calls may use, such as `accounts/openai/default`.
	Accounts []string
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
