package daemon

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/grpcserver"
)

// Registrar offers RPCs at a gRPC server.
type Registrar interface {
	Register(registrar grpc.ServiceRegistrar)
}

// Backend is a service that offers RPCs and nothing else.
type Backend interface {
	Registrar
	// Run does what goes on beside the calls, until ctx ends; it then returns nil.
	Run(ctx context.Context) error
	// Close ends the service, after Run has returned and calls are over.
	Close(ctx context.Context) error
}

// GRPC serves a backend, and more RPCs beside its own, on a gRPC server. Where that cannot be made the backend is closed.
func GRPC(ctx context.Context, parts Parts, backend Backend, more ...Registrar) (Server, error) {
	rpcs, err := grpcserver.New(grpcserver.Options{Logger: parts.Logger, Auth: parts.Auth, Metrics: parts.Metrics})
	if err != nil {
		return nil, errors.Join(err, backend.Close(ctx))
	}
	for _, r := range append([]Registrar{backend}, more...) {
		r.Register(rpcs)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	return &grpcServer{backend: backend, rpcs: rpcs, running: running, stop: stop}, nil
}

type grpcServer struct {
	backend Backend
	rpcs    *grpcserver.Server
	running context.Context //nolint:containedctx // The life of the backend's Run.
	stop    context.CancelFunc
	parts   sync.WaitGroup
}

// Serve implements Server. When either the calls or what goes on beside them ends by itself with an error, that error is returned at once; Stop ends the other.
func (s *grpcServer) Serve(l net.Listener) error {
	ended := make(chan error, 2)
	s.parts.Go(func() { ended <- s.backend.Run(s.running) })
	s.parts.Go(func() { ended <- s.rpcs.Serve(l) })
	s.rpcs.SetReady(true)
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Stop implements Server.
func (s *grpcServer) Stop(ctx context.Context) error {
	s.stop()
	s.rpcs.Drain(ctx)
	s.parts.Wait()
	return s.backend.Close(ctx)
}
