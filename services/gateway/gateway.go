// Package gateway is the one address for clients: gRPC of every service, REST, server-sent events, OpenAPI, health and metrics. It keeps nothing.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/auth"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/gateway/internal/front"
	"github.com/evalfleet/evalfleet/services/gateway/internal/openapi"
	"github.com/evalfleet/evalfleet/services/gateway/internal/proxy"
	"github.com/evalfleet/evalfleet/services/gateway/internal/rest"
	"github.com/evalfleet/evalfleet/services/gateway/internal/split"
)

// Config sets whom the gateway serves.
type Config struct {
	// AllowedHosts are further values of the Host header that are served, beside loopback names and the address itself.
	AllowedHosts []string `yaml:"allowed_hosts" env:"EVALFLEET_ALLOWED_HOSTS"`
}

// Deps are the services behind the gateway, and what it shares with the process.
type Deps struct {
	// Models, Tools, Sandboxes and Orchestrator are connections to the four services. They pass the caller's credential on and add none of their own.
	Models, Tools, Sandboxes, Orchestrator *grpc.ClientConn
	// Listen is the address that the gateway was told to take clients at: one that they may name as the Host.
	Listen string
	// Auth knows the callers.
	Auth auth.Authenticator
	// Logger logs.
	Logger *slog.Logger
	// Metrics counts calls; Gatherer gives what is shown under /metrics. Either may be nil.
	Metrics  *telemetry.CallMetrics
	Gatherer prometheus.Gatherer
}

// UnaryInterceptor belongs on the connections handed in as Deps: it carries a REST caller's Idempotency-Key into the request.
var UnaryInterceptor grpc.UnaryClientInterceptor = rest.UnaryKeys

// Gateway serves clients.
type Gateway struct {
	grpc    *grpcserver.Server
	http    *http.Server
	workers *split.Front
	log     *slog.Logger
}

// New builds a gateway; it listens once Serve is called.
func New(ctx context.Context, cfg Config, deps Deps) (*Gateway, error) {
	conns := map[string]*grpc.ClientConn{
		modelv1.ModelService_ServiceDesc.ServiceName:     deps.Models,
		modelv1.CacheService_ServiceDesc.ServiceName:     deps.Models,
		modelv1.BatchService_ServiceDesc.ServiceName:     deps.Models,
		modelv1.LimitService_ServiceDesc.ServiceName:     deps.Models,
		toolv1.ToolService_ServiceDesc.ServiceName:       deps.Tools,
		toolv1.McpService_ServiceDesc.ServiceName:        deps.Tools,
		sandboxv1.SandboxService_ServiceDesc.ServiceName: deps.Sandboxes,
		agentv1.RunService_ServiceDesc.ServiceName:       deps.Orchestrator,
		agentv1.EvalService_ServiceDesc.ServiceName:      deps.Orchestrator,
		agentv1.ApprovalService_ServiceDesc.ServiceName:  deps.Orchestrator,
		agentv1.AdminService_ServiceDesc.ServiceName:     deps.Orchestrator,
		blobv1.BlobService_ServiceDesc.ServiceName:       deps.Orchestrator,
	}
	backends := proxy.Backends{}
	for name, conn := range conns {
		backends[name] = conn
	}
	s, err := grpcserver.New(grpcserver.Options{Logger: deps.Logger, Auth: deps.Auth, Metrics: deps.Metrics, Services: backends.Services(), Extra: backends.ServerOptions()})
	if err != nil {
		return nil, err
	}
	api, err := rest.New(ctx, conns)
	if err != nil {
		return nil, err
	}
	orchestrator := workerv1.NewWorkerServiceClient(deps.Orchestrator)
	workers := split.New(split.Hosts{ByKind: map[string]workerv1.WorkerServiceClient{"tool": workerv1.NewWorkerServiceClient(deps.Tools)}, Rest: orchestrator})
	workerv1.RegisterWorkerServiceServer(s, workers)
	g := &Gateway{grpc: s, workers: workers, log: deps.Logger}
	g.http = &http.Server{
		Handler:           guard(cfg, deps.Listen, g.routes(api, deps)),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(deps.Logger.Handler(), slog.LevelDebug),
	}
	return g, nil
}

func (g *Gateway) routes(api http.Handler, deps Deps) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/api/v1/", api)
	mux.Handle("GET /openapi.json", openapi.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	if deps.Gatherer != nil {
		mux.Handle("GET /metrics", authenticated(deps.Auth, promhttp.HandlerFor(deps.Gatherer, promhttp.HandlerOpts{})))
	}
	return mux
}

// Serve takes connections of l, gRPC and HTTP alike, until Stop.
func (g *Gateway) Serve(l net.Listener) error {
	http2, http1 := front.Split(l)
	failed := make(chan error, 2)
	go func() { failed <- g.grpc.Serve(http2) }()
	go func() { failed <- g.http.Serve(http1) }()
	g.grpc.SetReady(true)
	first := <-failed
	_ = l.Close()
	second := <-failed
	for _, err := range []error{first, second} {
		if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return nil
}

// Stop lets calls in flight end and cuts those that still run when ctx ends. Watches never end by themselves, so a caller bounds ctx.
func (g *Gateway) Stop(ctx context.Context) error {
	g.grpc.SetReady(false)
	g.workers.Close()
	err := g.http.Shutdown(ctx)
	if err != nil {
		err = g.http.Close()
	}
	g.grpc.Drain(ctx)
	return err
}
