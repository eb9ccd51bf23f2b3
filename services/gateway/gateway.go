// Package gateway is the single address for clients: gRPC of every service, REST, server-sent events, OpenAPI, health
// and metrics. It is stateless.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/connmux"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/httpdeadline"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/gateway/internal/openapi"
	"github.com/evalfleet/evalfleet/services/gateway/internal/proxy"
	"github.com/evalfleet/evalfleet/services/gateway/internal/rest"
	"github.com/evalfleet/evalfleet/services/gateway/internal/workerproxy"
)

// Config configures the gateway.
type Config struct {
	// WriteTimeout is how long a client may leave an answer over HTTP unread, of a watch or of a vendor-shaped
	// endpoint, before its connection is closed. Zero means no bound. Default 30s.
	WriteTimeout time.Duration `yaml:"write_timeout" env:"EVALFLEET_WRITE_TIMEOUT"`
	// AllowedHosts are additional accepted values of the Host header, beside loopback names and the listen address.
	AllowedHosts []string `yaml:"allowed_hosts" env:"EVALFLEET_ALLOWED_HOSTS"`
}

// SetDefaults sets the default of WriteTimeout.
func (c *Config) SetDefaults() { c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second) }

// Validate rejects a negative bound.
func (c *Config) Validate() error {
	if c.WriteTimeout < 0 {
		return errors.New("write_timeout: must not be negative; 0 is no bound")
	}
	return nil
}

// Deps are the services behind the gateway, and what it shares with its process.
type Deps struct {
	// Models, Tools, Sandboxes and Orchestrator are connections to the four services. They forward the caller's
	// credential and add none of their own.
	Models, Tools, Sandboxes, Orchestrator grpc.ClientConnInterface
	// Servers are those of the services that run in this process, by the service's name. Calls over gRPC go to their
	// handlers without a connection. They are stopped after the gateway.
	Servers map[string]*grpcserver.Server
	// Listen is the configured listen address. Clients may name it as the Host.
	Listen string
	// Vendor serves the vendor-shaped endpoints, below [dialect.Paths], if modelgw runs in this process. The handler
	// authenticates its callers itself.
	Vendor http.Handler
	// VendorAddress is modelgw's host:port if it runs in another process. If neither is set, there are no such
	// endpoints.
	VendorAddress string
	// Auth authenticates the callers.
	Auth auth.Authenticator
	// Connections bounds the open connections of clients; zero means bound.Connections.
	Connections int
	// Logger logs.
	Logger *slog.Logger
	// Metrics counts calls; Gatherer provides the metrics of /metrics. Either may be nil.
	Metrics  *telemetry.CallMetrics
	Gatherer prometheus.Gatherer
	// Traces makes spans of calls; nil makes none.
	Traces *telemetry.Traces
}

// Gateway serves clients. It is safe for concurrent use.
type Gateway struct {
	front   *connmux.Server
	workers *workerproxy.Proxy
	// idle closes idle connections.
	idle func()
	// stop ends the calls of clients that only wait, and the gateway's watch of the services behind it. watched waits
	// for the latter.
	stop    context.CancelFunc
	watched sync.WaitGroup
}

// owners are the services that the gateway offers, by full name, and the programs that have them.
func owners() map[string]string {
	return map[string]string{
		modelv1.ModelService_ServiceDesc.ServiceName:          "modelgw",
		modelv1.CacheService_ServiceDesc.ServiceName:          "modelgw",
		modelv1.BatchService_ServiceDesc.ServiceName:          "modelgw",
		modelv1.DetachedService_ServiceDesc.ServiceName:       "modelgw",
		modelv1.LimitService_ServiceDesc.ServiceName:          "modelgw",
		toolv1.ToolService_ServiceDesc.ServiceName:            "toolexec",
		toolv1.McpService_ServiceDesc.ServiceName:             "toolexec",
		toolv1.ScopeService_ServiceDesc.ServiceName:           "toolexec",
		sandboxv1.SandboxService_ServiceDesc.ServiceName:      "sandboxd",
		sandboxv1.PauseService_ServiceDesc.ServiceName:        "sandboxd",
		sandboxv1.PortService_ServiceDesc.ServiceName:         "sandboxd",
		sandboxv1.SessionService_ServiceDesc.ServiceName:      "sandboxd",
		sandboxv1.SnapshotService_ServiceDesc.ServiceName:     "sandboxd",
		sandboxv1.InboundService_ServiceDesc.ServiceName:      "sandboxd",
		sandboxv1.SandboxGroupService_ServiceDesc.ServiceName: "sandboxd",
		sandboxv1.SandboxPoolService_ServiceDesc.ServiceName:  "sandboxd",
		agentv1.RunService_ServiceDesc.ServiceName:            "agentorch",
		agentv1.EvalService_ServiceDesc.ServiceName:           "agentorch",
		agentv1.InboxService_ServiceDesc.ServiceName:          "agentorch",
		agentv1.QuotaService_ServiceDesc.ServiceName:          "agentorch",
		agentv1.BridgeService_ServiceDesc.ServiceName:         "agentorch",
		agentv1.CatalogueService_ServiceDesc.ServiceName:      "agentorch",
		agentv1.ForkService_ServiceDesc.ServiceName:           "agentorch",
		agentv1.ScoreService_ServiceDesc.ServiceName:          "agentorch",
		agentv1.SteeringService_ServiceDesc.ServiceName:       "agentorch",
		agentv1.AdminService_ServiceDesc.ServiceName:          "agentorch",
		blobv1.BlobService_ServiceDesc.ServiceName:            "agentorch",
	}
}

// New returns a gateway. It serves no client until Serve is called.
func New(ctx context.Context, cfg Config, deps Deps) (*Gateway, error) {
	peers := map[string]grpc.ClientConnInterface{"modelgw": deps.Models, "toolexec": deps.Tools, "sandboxd": deps.Sandboxes, "agentorch": deps.Orchestrator}
	patient := map[string]grpc.ClientConnInterface{}
	for program, conn := range peers {
		patient[program] = grpcclient.WaitForReady(conn, program, grpcclient.Patience)
	}
	conns := map[string]grpc.ClientConnInterface{}
	for service, program := range owners() {
		conns[service] = patient[program]
	}
	backends := proxy.Backends(conns)
	s, err := grpcserver.New(grpcserver.Options{Logger: deps.Logger, Auth: deps.Auth, Metrics: deps.Metrics, Traces: deps.Traces, Service: "gateway", Services: backends.Services(), Extra: backends.ServerOptions()})
	if err != nil {
		return nil, err
	}
	for service, program := range owners() {
		if own, ok := deps.Servers[program]; ok {
			// Calls of a service that is not built yet are forwarded, and the program answers so.
			s.Include(own, service) //nolint:contextcheck // Each call has a context of its own.
		}
	}
	running, stop := context.WithCancel(ctx)
	api, err := rest.New(running, conns)
	if err != nil {
		stop()
		return nil, err
	}
	orchestrator := workerv1.NewWorkerServiceClient(patient["agentorch"])
	workers := workerproxy.New(workerproxy.Hosts{ByKind: map[string]workerv1.WorkerServiceClient{
		"tool": workerv1.NewWorkerServiceClient(patient["toolexec"]), "scorer": orchestrator, "continue": orchestrator,
	}})
	workerv1.RegisterWorkerServiceServer(s, workers)
	g := &Gateway{workers: workers, idle: func() {}, stop: stop}
	vendor := deps.Vendor
	if vendor == nil && deps.VendorAddress != "" {
		vendor, g.idle = forward(deps.VendorAddress, cfg.WriteTimeout, deps.Auth, deps.Logger)
	}
	for name, conn := range peers {
		g.watched.Go(func() { grpcclient.Watch(running, conn, func(away bool) { s.SetPeer(name, !away) }) })
	}
	g.front = connmux.New(connmux.Config{
		GRPC: s, Handler: guard(cfg, deps.Listen, routes(api, vendor, cfg, deps)), Connections: deps.Connections, Logger: deps.Logger,
	})
	return g, nil
}

// maxShownPath bounds the path in an error, in bytes.
const maxShownPath = 200

func routes(api, vendor http.Handler, cfg Config, deps Deps) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/api/v1/", auth.Guard(deps.Auth, traced(paced(api, cfg.WriteTimeout), deps.Traces)))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusNotFound, rpcerr.RouteNotFound(r.Method, headtail.Cut(r.URL.Path, maxShownPath)))
	})
	mux.Handle("GET /openapi.json", openapi.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	if deps.Gatherer != nil {
		mux.Handle("GET /metrics", auth.Guard(deps.Auth, telemetry.Page(deps.Gatherer)))
	}
	if vendor == nil {
		return mux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if dialect.Serves(r.URL.Path) { // Vendors' clients pass one router, their own.
			vendor.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// paced cuts off answers of next that a client leaves unread for longer than within; zero means no bound.
func paced(next http.Handler, within time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(httpdeadline.NewWriter(w, within), r) })
}

// traced makes a span of each REST call. The call below it has the name of its method and its code.
func traced(next http.Handler, traces *telemetry.Traces) http.Handler {
	if traces == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := traces.ServeHTTP(r.Context(), r, "gateway", "/api/v1/")
		defer end("")
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Serve accepts connections from l, gRPC and HTTP alike, until Stop.
func (g *Gateway) Serve(l net.Listener) error { return g.front.Serve(l) }

// Stop ends calls that only wait, waits for other calls in flight, and cuts off those that still run when ctx ends.
func (g *Gateway) Stop(ctx context.Context) error {
	defer g.idle()
	g.stop()
	g.watched.Wait()
	g.front.Unready()
	g.workers.Close()
	return g.front.Stop(ctx)
}
