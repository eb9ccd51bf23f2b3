package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/connmux"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// Registrar offers RPCs at a gRPC server.
type Registrar interface {
	Register(registrar grpc.ServiceRegistrar)
}

// Backend is a service that offers RPCs and nothing else.
type Backend interface {
	Registrar
	// Run does the background work until ctx ends; it then returns nil.
	Run(ctx context.Context) error
	// Close ends the service, after Run has returned and calls are over.
	Close(ctx context.Context) error
}

// GRPC serves a backend, and further RPCs beside its own, on a gRPC server. An HTTP server at the same address serves
// the metrics of the process at /metrics, to known callers, and all other paths from a backend that is [Web]. If the
// server cannot be created the backend is closed.
func GRPC(ctx context.Context, parts Parts, backend Backend, more ...Registrar) (Server, error) {
	rpcs, err := grpcserver.New(grpcserver.Options{Logger: parts.Logger, Auth: parts.Auth, Metrics: parts.Metrics, Traces: parts.Traces, Blobs: parts.Blobs, Room: parts.Room, Service: parts.Name})
	if err != nil {
		return nil, errors.Join(err, backend.Close(ctx))
	}
	for _, r := range append([]Registrar{backend}, more...) {
		r.Register(rpcs)
	}
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", auth.Guard(parts.Auth, telemetry.Page(parts.Gatherer)))
	web, isWeb := backend.(Web)
	if isWeb {
		pages.Handle("/", web.Handler())
	}
	if parts.Servers != nil {
		parts.Servers[parts.Name] = rpcs
	}
	parts.Running.add(parts.Name, backend)
	s := &grpcServer{backend: backend, calls: connmux.New(connmux.Config{GRPC: rpcs, Handler: pages, Connections: parts.Connections, Logger: parts.Logger})}
	s.running, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if isWeb {
		return webServer{s, web}, nil
	}
	return s, nil
}

type grpcServer struct {
	backend Backend
	calls   Server
	running context.Context //nolint:containedctx // The life of the backend's Run.
	stop    context.CancelFunc

	mu    sync.Mutex // held while the parts start, so that Stop waits for all of them or none starts
	parts sync.WaitGroup
}

// webServer is a server of a backend with a handler.
type webServer struct {
	*grpcServer
	Web
}

// Serve implements Server. If either the calls or the background work ends by itself with an error, Serve returns that
// error at once; Stop ends the other.
func (s *grpcServer) Serve(l net.Listener) error {
	ended := make(chan error, 2)
	if !s.begin(l, ended) {
		return nil
	}
	for range cap(ended) {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// begin starts the background work, unless the server was stopped before.
func (s *grpcServer) begin(l net.Listener, ended chan<- error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running.Err() != nil {
		return false
	}
	s.parts.Go(func() { ended <- s.backend.Run(s.running) })
	s.parts.Go(func() { ended <- s.calls.Serve(l) })
	return true
}

// Stop implements Server.
func (s *grpcServer) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	err := s.calls.Stop(ctx)
	s.parts.Wait()
	return errors.Join(err, s.backend.Close(ctx))
}
