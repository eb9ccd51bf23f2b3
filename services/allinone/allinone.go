// Package allinone is every service in one process: over in-memory connections, with embedded parts, and the gateway in front on one loopback address.
//
// The services are the same as in a fleet, and so are their connections: each has a gRPC server of its own with its own check of credentials; only the bytes do not leave the process. Journal, effect
// ledgers and catalogue share one SQLite database, so that one sync of the disk makes the steps of many runs durable at once.
//
//	clients ──▶ gateway (TCP, loopback) ──▶ modelgw   toolexec   sandboxd   agentorch      (in-memory listeners)
//	                                           ▲          ▲          ▲          │
//	                                           └──────────┴──────────┴──────────┘
//
// With Config.Target a process has one of them, served over TCP, and calls the others at their addresses.
package allinone

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/lifecycle"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/allinone/internal/datadir"
	"github.com/evalfleet/evalfleet/services/gateway"
)

// Deps are what the process hands in.
type Deps struct {
	// Dir is the data directory, which Lock holds. The server announces its address there.
	Dir  datadir.Dir
	Lock *datadir.Lock
	// Logger logs.
	Logger *slog.Logger
	// AnyPort lets the gateway take a free port when its own is in use.
	AnyPort bool
	// Idle leaves unfinished work alone and takes no clients but this process: for commands that only look.
	Idle bool
}

// Server is the services of one process.
type Server struct {
	cfg   Config
	deps  Deps
	group lifecycle.Group

	token    config.Secret
	tokens   *auth.Tokens
	owner    string
	registry *prometheus.Registry
	metrics  *telemetry.CallMetrics
	db       *sqlite.DB
	blobs    blob.Store
	internal map[string]config.Secret
	memory   map[string]grpcserver.Memory
	listener *countedListener
	failed   chan error
}

// New makes a server; nothing runs until Start.
func New(cfg Config, deps Deps) *Server {
	s := &Server{
		cfg: cfg, deps: deps, owner: "evalfleet-" + rand.Text(), registry: telemetry.NewRegistry(),
		internal: map[string]config.Secret{}, memory: map[string]grpcserver.Memory{}, failed: make(chan error, 2*len(Targets)),
	}
	s.metrics = telemetry.NewCallMetrics(s.registry)
	s.group.Add(
		lifecycle.Part{Name: "credentials", Start: s.startCredentials},
		lifecycle.Part{Name: "address", Start: s.startListener, Stop: s.stopListener},
	)
	if cfg.Target != "gateway" {
		s.group.Add(
			lifecycle.Part{Name: "database", Start: s.startDatabase, Stop: s.stopDatabase},
			lifecycle.Part{Name: "blobs", Start: s.startBlobs},
		)
	}
	s.addServices()
	if cfg.runs("gateway") {
		s.group.Add(s.gateway())
	}
	s.group.Add(lifecycle.Part{
		Name:  "announcement",
		Start: func(context.Context) error { return s.Announce(true) },
		Stop:  func(context.Context) error { return s.Announce(false) },
	})
	return s
}

// Start starts everything in order and returns when clients are served. When a part fails, those before it are stopped.
func (s *Server) Start(ctx context.Context) error { return s.group.Start(ctx) }

// Stop stops everything in reverse within grace: clients first, then runs are left to whoever serves the data directory next, and sandboxes to their leases.
func (s *Server) Stop(ctx context.Context, grace time.Duration) error {
	return s.group.Stop(ctx, grace)
}

// Failed brings the error of a part that ended by itself.
func (s *Server) Failed() <-chan error { return s.failed }

// Address is where clients are served.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Token is the admin token.
func (s *Server) Token() config.Secret { return s.token }

// Clients is the number of connections that clients have open.
func (s *Server) Clients() int { return int(s.listener.open.Load()) }

// Announce tells in the data directory where clients are served, or takes that back, so that new ones wait. An idle server is not announced.
func (s *Server) Announce(serving bool) error {
	address := ""
	if serving && !s.deps.Idle {
		address = s.Address()
	}
	return s.deps.Lock.Announce(address)
}

// startCredentials finds or makes the admin token, and makes one for each service that calls others, good for the life of this process.
func (s *Server) startCredentials(context.Context) error {
	s.token = s.cfg.Token
	hint := ""
	if s.token.IsZero() {
		file := cmp.Or(s.cfg.TokenFile, s.deps.Dir.Token())
		token, err := auth.TokenFile(file)
		if err != nil {
			return err
		}
		s.token, hint = token, "; it is in "+file
	}
	known := map[string]config.Secret{"admin": s.token}
	for name := range calls {
		s.internal[name] = s.token
		if s.cfg.Target == "" {
			s.internal[name] = config.NewSecret(rand.Text())
			known["service:"+name] = s.internal[name]
		}
	}
	s.tokens = auth.NewTokens(hint, known)
	return nil
}

func (s *Server) startDatabase(ctx context.Context) (err error) {
	s.db, err = sqlite.Open(ctx, s.deps.Dir.Database(), sqlite.Options{})
	return err
}

func (s *Server) stopDatabase(context.Context) error { return s.db.Close() }

func (s *Server) startBlobs(context.Context) (err error) {
	s.blobs, err = disk.Open(disk.Config{Dir: s.deps.Dir.Blobs()})
	return err
}

// startListener takes the address early: a port in use should be known before anything else happens.
func (s *Server) startListener(ctx context.Context) error {
	const anyPort = "127.0.0.1:0"
	address := s.cfg.Gateway.Listen
	if s.deps.Idle {
		address = anyPort
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	inUse := errors.Is(err, syscall.EADDRINUSE)
	if inUse && s.deps.AnyPort {
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", anyPort)
	} else if inUse {
		return fmt.Errorf("%s is in use; stop what listens there, or choose another address with --listen, such as --listen 127.0.0.1:0 for any free port", address)
	}
	if err != nil {
		return err
	}
	s.listener = &countedListener{Listener: l}
	return nil
}

func (s *Server) stopListener(context.Context) error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// connect makes a connection to a service: in memory, or to the process that has it. A service calls with a credential of its own; the gateway, named by an empty caller, passes on its callers'.
func (s *Server) connect(caller, name string) (*grpc.ClientConn, error) {
	options := grpcclient.Options{Token: s.internal[caller]}
	if caller == "" {
		options.Unary = gateway.UnaryInterceptor
	}
	if memory, ok := s.memory[name]; ok {
		options.Dial = memory.Dial
		return grpcclient.New(name, options)
	}
	return grpcclient.New(s.cfg.Peers.address(name), options)
}

// gateway is the part in front.
func (s *Server) gateway() lifecycle.Part {
	var g *gateway.Gateway
	conns := map[string]*grpc.ClientConn{}
	closeConns := func() (err error) {
		for _, conn := range conns {
			err = errors.Join(err, conn.Close())
		}
		return err
	}
	served := make(chan struct{})
	return lifecycle.Part{
		Name: "gateway",
		Start: func(ctx context.Context) (err error) {
			for _, name := range calls["gateway"] {
				if conns[name], err = s.connect("", name); err != nil {
					delete(conns, name)
					return errors.Join(err, closeConns())
				}
			}
			// The gateway's clients live as long as it does, not as long as the start.
			g, err = gateway.New(context.WithoutCancel(ctx), s.cfg.Gateway, gateway.Deps{
				Models: conns["modelgw"], Tools: conns["toolexec"], Sandboxes: conns["sandboxd"], Orchestrator: conns["agentorch"],
				Auth: s.tokens, Logger: s.deps.Logger, Gatherer: s.registry,
			})
			if err != nil {
				return errors.Join(err, closeConns())
			}
			go func() {
				defer close(served)
				s.ended("gateway", g.Serve(s.listener))
			}()
			return nil
		},
		Stop: func(ctx context.Context) error {
			err := g.Stop(ctx)
			<-served
			return errors.Join(err, closeConns())
		},
	}
}

// ended tells of a part that ended by itself and not because it was stopped.
func (s *Server) ended(name string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		s.failed <- fmt.Errorf("%s: %w", name, err)
	}
}
