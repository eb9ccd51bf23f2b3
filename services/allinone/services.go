package allinone

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/blob/blobserver"
	"github.com/evalfleet/evalfleet/pkg/effect"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/lifecycle"
	"github.com/evalfleet/evalfleet/services/agentorch"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/sandboxd"
	"github.com/evalfleet/evalfleet/services/toolexec"
)

// built is a service that was made: what to register, what goes on beside the calls, and how to end it.
type built struct {
	register func(grpc.ServiceRegistrar)
	run      func(context.Context) error // nil for nothing
	close    func(context.Context) error
}

// addServices adds the services behind the gateway, callees first.
func (s *Server) addServices() {
	for _, service := range []struct {
		name  string
		build func(ctx context.Context, conn func(callee string) (*grpc.ClientConn, error)) (built, error)
	}{
		{"modelgw", s.buildModelgw},
		{"sandboxd", s.buildSandboxd},
		{"toolexec", s.buildToolexec},
		{"agentorch", s.buildAgentorch},
	} {
		if s.cfg.runs(service.name) {
			s.addService(service.name, service.build)
		}
	}
}

// addService adds a service on a gRPC server of its own: in memory, or on the process's address where it is alone.
func (s *Server) addService(name string, build func(context.Context, func(string) (*grpc.ClientConn, error)) (built, error)) {
	alone := s.cfg.Target == name
	if !alone {
		s.memory[name] = grpcserver.ListenMemory()
	}
	var (
		service built
		server  *grpcserver.Server
		conns   []io.Closer
		ends    sync.WaitGroup
		stopRun context.CancelFunc
	)
	closeConns := func() (err error) {
		for _, conn := range conns {
			err = errors.Join(err, conn.Close())
		}
		return err
	}
	s.group.Add(lifecycle.Part{
		Name: name,
		Start: func(ctx context.Context) (err error) {
			server, err = grpcserver.New(grpcserver.Options{Logger: s.deps.Logger.With("service", name), Auth: s.tokens, Metrics: s.metrics})
			if err != nil {
				return err
			}
			service, err = build(ctx, func(callee string) (*grpc.ClientConn, error) {
				conn, err := s.connect(name, callee)
				if err == nil {
					conns = append(conns, conn)
				}
				return conn, err
			})
			if err != nil {
				return errors.Join(err, closeConns())
			}
			service.register(server)
			listener := net.Listener(s.memory[name])
			if alone {
				listener = s.listener
			}
			ends.Go(func() { s.ended(name, server.Serve(listener)) })
			var running context.Context
			running, stopRun = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // Stop calls it.
			if service.run != nil {
				ends.Go(func() { s.ended(name, service.run(running)) })
			}
			server.SetReady(true)
			return nil
		},
		Stop: func(ctx context.Context) error {
			stopRun()
			server.Drain(ctx)
			ends.Wait()
			return errors.Join(service.close(ctx), closeConns())
		},
	})
}

// replica is the name under which the process that holds the data directory owns runs: there is one at a time, and the next one goes on with them.
const replica = "local"

// ledger is a service's own table of claims and results.
func (s *Server) ledger(ctx context.Context, name string) (effect.Ledger, error) {
	return effectsqlite.New(ctx, s.db, name+"_effects")
}

func (s *Server) buildModelgw(ctx context.Context, _ func(string) (*grpc.ClientConn, error)) (built, error) {
	ledger, err := s.ledger(ctx, "modelgw")
	if err != nil {
		return built{}, err
	}
	service, err := modelgw.New(s.cfg.Modelgw, modelgw.Deps{Ledger: ledger, Owner: s.owner, Blobs: s.readBlob, Logger: s.deps.Logger})
	if err != nil {
		return built{}, err
	}
	return built{register: service.Register, run: service.Run, close: service.Close}, nil
}

// readBlob reads a body whole. Scripts of a scripted model are its only use, so the bound is a small one.
func (s *Server) readBlob(ctx context.Context, project, hash string) ([]byte, error) {
	body, _, err := s.blobs.Get(ctx, project, hash, 0, 0)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(body, 64<<20))
	return b, errors.Join(err, body.Close())
}

func (s *Server) buildToolexec(ctx context.Context, connect func(string) (*grpc.ClientConn, error)) (built, error) {
	ledger, err := s.ledger(ctx, "toolexec")
	if err != nil {
		return built{}, err
	}
	sandboxes, err := connect("sandboxd")
	if err != nil {
		return built{}, err
	}
	service, err := toolexec.New(s.cfg.Toolexec, toolexec.Deps{Sandboxes: sandboxes, Ledger: ledger, Owner: s.owner, Logger: s.deps.Logger})
	if err != nil {
		return built{}, err
	}
	return built{register: service.Register, run: service.Run, close: service.Close}, nil
}

func (s *Server) buildSandboxd(ctx context.Context, _ func(string) (*grpc.ClientConn, error)) (built, error) {
	ledger, err := s.ledger(ctx, "sandboxd")
	if err != nil {
		return built{}, err
	}
	cfg := s.cfg.Sandboxd
	if cfg.Dir == "" {
		cfg.Dir = s.deps.Dir.Sandboxes()
	}
	//nolint:contextcheck // A start is as short as the disk allows.
	service, err := sandboxd.New(cfg, sandboxd.Deps{DB: s.db, Ledger: ledger, Owner: s.owner, Logger: s.deps.Logger})
	if err != nil {
		return built{}, err
	}
	return built{register: service.Register, run: service.Run, close: service.Close}, nil
}

func (s *Server) buildAgentorch(ctx context.Context, connect func(string) (*grpc.ClientConn, error)) (built, error) {
	conns := map[string]*grpc.ClientConn{}
	for _, callee := range calls["agentorch"] {
		conn, err := connect(callee)
		if err != nil {
			return built{}, err
		}
		conns[callee] = conn
	}
	deps := agentorch.Deps{
		Models: conns["modelgw"], Tools: conns["toolexec"], Sandboxes: conns["sandboxd"],
		DB: s.db, Blobs: s.blobs, Logger: s.deps.Logger, Replica: replica,
		DataDir: s.deps.Dir.Path(),
	}
	if s.cfg.Target == "" {
		deps.Services = Targets
	}
	service, err := agentorch.New(ctx, s.cfg.Agentorch, deps)
	if err != nil {
		return built{}, err
	}
	b := built{
		register: func(registrar grpc.ServiceRegistrar) {
			service.Register(registrar)
			blobserver.New(s.blobs).Register(registrar)
		},
		run: service.Run, close: service.Close,
	}
	if s.deps.Idle {
		b.run = nil
	}
	return b, nil
}
