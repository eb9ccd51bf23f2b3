// Package allinone is every service in one process: joined within it, with embedded parts, and the gateway in front on
// one loopback address.
//
// The services are the same as in a fleet, and so are their calls: each has a gRPC server of its own with its own check
// of credentials; only the bytes do not leave the process. The gateway's server includes the others, so that the gRPC
// calls of clients are read once; REST, and the services among themselves, call over the listeners. Journal, effect
// ledgers and catalogue share one SQLite database, so that one sync of the disk makes the steps of many runs durable at
// once.
//
//	clients ──▶ gateway (TCP, loopback) ──▶ modelgw   toolexec   sandboxd   agentorch      (in-process listeners)
//	                                           ▲          ▲          ▲          │
//	                                           └──────────┴──────────┴──────────┘
//
// A process with one of them is a pkg/daemon.Process.
package allinone

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	"github.com/evalfleet/evalfleet/pkg/dirlock"
	"github.com/evalfleet/evalfleet/pkg/freespace"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
	"github.com/evalfleet/evalfleet/pkg/lifecycle"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/allinone/internal/datadir"
	"github.com/evalfleet/evalfleet/services/gateway"
)

// Deps are what the process hands in.
type Deps struct {
	// Dir is the data directory, which Lock holds. The server announces its address there.
	Dir  datadir.Dir
	Lock *dirlock.Lock
	// Logger logs.
	Logger *slog.Logger
	// AnyPort lets the gateway take a free port when its own is in use.
	AnyPort bool
	// Idle leaves unfinished work alone and takes no clients but this process: for commands that only look.
	Idle bool
}

// Server is the services of one process.
type Server struct {
	deps  Deps
	group lifecycle.Group

	base     *daemon.Base
	internal map[string]config.Secret // the credential of each service that calls others
	parts    daemon.Parts             // what the services share
	within   map[string]*inprocess.Listener
	running  daemon.Running
	listener *countedListener
	failed   chan error
}

// anyPort is where a server listens that has clients in its own process alone.
const anyPort = "127.0.0.1:0"

// New makes a server; nothing runs until Start.
func New(cfg Config, deps Deps) *Server {
	registry := telemetry.NewRegistry()
	programs := cfg.programs()
	listen := cmp.Or(cfg.Listen, gateway.DefaultListen)
	owner := "evalfleet-" + rand.Text()
	base := daemon.BaseConfig{
		Owner: owner, Service: "evalfleet", Replica: cfg.Replica, ReplicaTTL: cfg.ReplicaTTL,
		Token: cfg.Token, TokenFile: cmp.Or(cfg.TokenFile, deps.Dir.Token()), Listen: listen, Option: "--listen",
		Database: deps.Dir.Database(), BlobDir: cmp.Or(cfg.BlobDir, deps.Dir.Blobs()), Lock: deps.Lock, Telemetry: cfg.Telemetry, Logger: deps.Logger,
	}
	if deps.AnyPort {
		base.Fallback = anyPort
	}
	if deps.Idle {
		base.Listen, base.Lock, base.Owner = anyPort, nil, ""
	}
	s := &Server{
		deps: deps, base: daemon.NewBase(base), internal: map[string]config.Secret{}, within: map[string]*inprocess.Listener{}, failed: make(chan error, len(programs)),
		parts: daemon.Parts{
			Owner: owner, Services: Targets, Idle: deps.Idle, Listen: listen, Connections: cfg.MaxConnections, DataDir: deps.Dir.Path(), Space: freespace.New(cfg.MinFreeBytes, deps.Dir.Path(), base.BlobDir),
			Handlers: map[string]http.Handler{}, Servers: map[string]*grpcserver.Server{}, Room: offload.NewRoom(bound.HeldBytes), Metrics: telemetry.NewCallMetrics(registry), Registerer: registry, Gatherer: registry,
		},
	}
	s.parts.Running = &s.running
	daemon.WarnInClear(base.Listen, deps.Logger)
	s.group.Add(s.base.Parts()...)
	s.group.Add(lifecycle.Part{Name: "shared parts", Start: func(context.Context) error { s.share(programs); return nil }})
	if !deps.Idle { // One that only looks calls no model.
		s.group.Add(lifecycle.Part{Name: "modelgw's accounts", Start: func(context.Context) error { return cfg.Modelgw.RefuseOwn(listen, s.Address()) }})
	}
	for _, program := range programs {
		s.group.Add(s.service(program))
	}
	s.group.Add(s.base.Announcement())
	return s
}

// Start starts everything in order and returns when clients are served. When a part fails, those before it are stopped.
func (s *Server) Start(ctx context.Context) error { return s.group.Start(ctx) }

// Stop stops everything in reverse order within grace: clients first; runs are left to the next server of the data
// directory, and sandboxes to their leases.
func (s *Server) Stop(ctx context.Context, grace time.Duration) error {
	return s.group.Stop(ctx, grace)
}

// Reload applies another configuration to the services that run, as far as they take it.
func (s *Server) Reload(ctx context.Context, next Config) error {
	if err := next.Modelgw.RefuseOwn(s.Address()); err != nil {
		return err
	}
	for _, program := range next.programs() {
		if err := s.running.Reload(ctx, program); err != nil {
			return err
		}
	}
	return nil
}

// Failed brings the error of a part that ended by itself.
func (s *Server) Failed() <-chan error { return s.failed }

// Address is where clients are served.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Token is the admin token.
func (s *Server) Token() config.Secret { return s.base.Token }

// Clients is the number of connections that clients have open.
func (s *Server) Clients() int { return int(s.listener.open.Load()) }

// Announce writes the server's address into the data directory, or removes it, so that new clients wait. An idle server
// is not announced.
func (s *Server) Announce(serving bool) error { return s.base.Announce(serving) }

// share gives the services their shared dependencies, and each service that calls others a credential, valid for the
// life of this process.
func (s *Server) share(programs []daemon.Program) {
	s.listener = &countedListener{Listener: s.base.Listener}
	known := map[string]config.Secret{auth.Operator: s.base.Token}
	for _, program := range programs {
		if len(program.Calls) > 0 && !program.Forward {
			s.internal[program.Name] = config.NewSecret(rand.Text())
			known["service:"+program.Name] = s.internal[program.Name]
		}
	}
	s.parts.Traces = s.base.Traces
	s.parts.Auth, s.parts.DB, s.parts.Blobs = auth.Logged(auth.NewTokens("", known), s.deps.Logger), s.base.DB, s.base.Blobs
	if s.base.Replica != nil {
		s.parts.Replica, s.parts.Alive = s.base.Replica, s.base.Replica.Alive
	}
}

// connect makes connections to the services that a program calls. Those that it has made are returned with the error.
func (s *Server) connect(program daemon.Program) (map[string]grpcclient.Conn, error) {
	conns := map[string]grpcclient.Conn{}
	for _, name := range program.Calls {
		options := grpcclient.Options{}
		if !program.Forward {
			options.Token, options.Blobs = s.internal[program.Name], s.base.Blobs
		}
		conn, err := grpcclient.Within(s.within[name], options)
		if err != nil {
			return conns, err
		}
		conns[name] = conn
	}
	return conns, nil
}

// service is a service as a part: the gateway at the process's address, the others within the process.
func (s *Server) service(program daemon.Program) lifecycle.Part {
	name := program.Name
	if name != "gateway" {
		s.within[name] = inprocess.Listen()
	}
	return program.Part(func(context.Context) (daemon.Parts, net.Listener, error) {
		parts := s.parts
		peers, err := s.connect(program)
		parts.Name, parts.Peers, parts.Logger, parts.Metrics = name, peers, s.deps.Logger.With("service", name), s.parts.Metrics.Of(name)
		if within, ok := s.within[name]; ok {
			return parts, within, err
		}
		return parts, s.listener, err
	}, s.failed)
}
