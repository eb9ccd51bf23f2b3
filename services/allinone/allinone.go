// Package allinone is every service in one process: over in-memory connections, with embedded parts, and the gateway in front on one loopback address.
//
// The services are the same as in a fleet, and so are their connections: each has a gRPC server of its own with its own check of credentials; only the bytes do not leave the process. Journal, effect
// ledgers and catalogue share one SQLite database, so that one sync of the disk makes the steps of many runs durable at once.
//
//	clients ──▶ gateway (TCP, loopback) ──▶ modelgw   toolexec   sandboxd   agentorch      (in-memory listeners)
//	                                           ▲          ▲          ▲          │
//	                                           └──────────┴──────────┴──────────┘
//
// A process with one of them is a pkg/daemon.Process.
package allinone

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
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
	internal map[string]config.Secret // the credential of each service that calls others
	parts    daemon.Parts             // what the services share
	db       *sqlite.DB
	blobs    *disk.Store
	memory   map[string]grpcserver.Memory
	listener *countedListener
	failed   chan error
}

// New makes a server; nothing runs until Start.
func New(cfg Config, deps Deps) *Server {
	registry := telemetry.NewRegistry()
	programs := cfg.programs()
	s := &Server{
		cfg: cfg, deps: deps, internal: map[string]config.Secret{}, memory: map[string]grpcserver.Memory{}, failed: make(chan error, len(programs)),
		parts: daemon.Parts{
			Owner: "evalfleet-" + rand.Text(), Services: Targets, Idle: deps.Idle, Listen: cmp.Or(cfg.Listen, gateway.DefaultListen), DataDir: deps.Dir.Path(),
			Handlers: map[string]http.Handler{}, Metrics: telemetry.NewCallMetrics(registry), Gatherer: registry,
		},
	}
	s.group.Add(
		lifecycle.Part{Name: "credentials", Start: s.startCredentials},
		lifecycle.Part{Name: "address", Start: s.startListener, Stop: s.stopListener},
		lifecycle.Part{Name: "database", Start: s.startDatabase, Stop: s.stopDatabase},
		lifecycle.Part{Name: "blobs", Start: s.startBlobs, Stop: s.stopBlobs},
	)
	for _, program := range programs {
		s.group.Add(s.service(program))
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
	for _, program := range s.cfg.programs() {
		if len(program.Calls) > 0 && program.Forward == nil {
			s.internal[program.Name] = config.NewSecret(rand.Text())
			known["service:"+program.Name] = s.internal[program.Name]
		}
	}
	s.parts.Auth = auth.NewTokens(hint, known)
	return nil
}

func (s *Server) startDatabase(ctx context.Context) (err error) {
	s.db, err = sqlite.Open(ctx, s.deps.Dir.Database(), sqlite.Options{})
	s.parts.DB = s.db
	return err
}

func (s *Server) stopDatabase(context.Context) error { return s.db.Close() }

func (s *Server) startBlobs(context.Context) (err error) {
	s.blobs, err = disk.Open(disk.Config{Dir: cmp.Or(s.cfg.BlobDir, s.deps.Dir.Blobs())})
	s.parts.Blobs = s.blobs
	return err
}

func (s *Server) stopBlobs(context.Context) error { return s.blobs.Close() }

// startListener takes the address early: a port in use should be known before anything else happens.
func (s *Server) startListener(ctx context.Context) error {
	const anyPort = "127.0.0.1:0"
	address := s.parts.Listen
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

// connect makes connections to the services that a program calls.
func (s *Server) connect(program daemon.Program) (conns map[string]*grpc.ClientConn, err error) {
	conns = map[string]*grpc.ClientConn{}
	for _, name := range program.Calls {
		options := grpcclient.Options{Token: s.internal[program.Name], Unary: program.Forward, Dial: s.memory[name].Dial}
		conn, err := grpcclient.New(name, options)
		if err != nil {
			return nil, errors.Join(err, closeAll(conns))
		}
		conns[name] = conn
	}
	return conns, nil
}

func closeAll(conns map[string]*grpc.ClientConn) (err error) {
	for _, conn := range conns {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// service is a service as a part: the gateway at the process's address, the others in memory.
func (s *Server) service(program daemon.Program) lifecycle.Part {
	name := program.Name
	if name != "gateway" {
		s.memory[name] = grpcserver.ListenMemory()
	}
	var (
		server daemon.Server
		conns  map[string]*grpc.ClientConn
		served sync.WaitGroup
	)
	return lifecycle.Part{
		Name: name,
		Start: func(ctx context.Context) (err error) {
			if conns, err = s.connect(program); err != nil {
				return err
			}
			parts := s.parts
			parts.Name, parts.Peers, parts.Logger = name, conns, s.deps.Logger.With("service", name)
			if program.Effects {
				parts.Ledger, err = effectsqlite.New(ctx, s.db, daemon.LedgerTable(name))
			}
			if err == nil {
				server, err = program.Build(ctx, parts)
			}
			if err != nil {
				return errors.Join(err, closeAll(conns))
			}
			if web, ok := server.(daemon.Web); ok {
				s.parts.Handlers[name] = web.Handler()
			}
			listener := net.Listener(s.listener)
			if memory, ok := s.memory[name]; ok {
				listener = memory
			}
			served.Go(func() { s.ended(name, server.Serve(listener)) })
			return nil
		},
		Stop: func(ctx context.Context) error {
			err := server.Stop(ctx)
			served.Wait()
			return errors.Join(err, closeAll(conns))
		},
	}
}

// ended tells of a part that ended by itself and not because it was stopped.
func (s *Server) ended(name string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		s.failed <- fmt.Errorf("%s: %w", name, err)
	}
}
