package front

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
)

// Server is a gRPC server and an HTTP server at one address.
type Server struct {
	GRPC *grpcserver.Server
	HTTP *http.Server
}

// Serve takes connections of l until Stop, which may come first, and says that the server is ready. It then returns nil.
func (s *Server) Serve(l net.Listener) error {
	if _, ok := l.(*inprocess.Listener); ok { // nobody speaks HTTP within the process
		s.GRPC.SetReady(true)
		return s.GRPC.Serve(l)
	}
	http2, http1 := Split(l)
	failed := make(chan error, 2)
	go func() { failed <- s.GRPC.Serve(http2) }()
	go func() { failed <- s.HTTP.Serve(http1) }()
	s.GRPC.SetReady(true)
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
func (s *Server) Stop(ctx context.Context) error {
	s.GRPC.SetReady(false)
	err := s.HTTP.Shutdown(ctx)
	if err != nil {
		err = s.HTTP.Close()
	}
	s.GRPC.Drain(ctx)
	return err
}
