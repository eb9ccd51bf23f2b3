package connmux

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/connlimit"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/httpdeadline"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
)

// Server is a gRPC server and an HTTP server at one address. Its connections, and the headers and bodies of HTTP
// requests, are bounded; see pkg/bound.
type Server struct {
	grpc   *grpcserver.Server
	http   *http.Server
	limits connlimit.Limits
	log    *slog.Logger
}

// Config is the configuration of a Server. All but Connections is required.
type Config struct {
	// GRPC takes calls.
	GRPC *grpcserver.Server
	// Handler takes HTTP requests. It checks credentials before it reads a body.
	Handler http.Handler
	// Connections is how many connections may be open at once, as [connlimit.LimitsFor] takes it.
	Connections int
	// Logger logs.
	Logger *slog.Logger
}

// New makes a server.
func New(c Config) *Server {
	return &Server{
		grpc: c.GRPC, limits: connlimit.LimitsFor(c.Connections), log: c.Logger,
		http: &http.Server{
			Handler:           httpdeadline.Bodies(c.Handler, bound.BodyPause),
			ReadHeaderTimeout: bound.RequestHeaderTime,
			WriteTimeout:      bound.StrangerPause, // lifted once the caller is known, see [connlimit.MarkCallerAuthenticated]
			IdleTimeout:       bound.IdleHTTP,
			MaxHeaderBytes:    bound.RequestHeaderBytes,
			ConnContext:       connlimit.WithConn,
			ConnState:         trackRequests,
			ErrorLog:          slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
		},
	}
}

// trackRequests records whether an HTTP connection has a request in flight.
func trackRequests(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateActive:
		connlimit.CallBegan(c)
	case http.StateIdle:
		connlimit.CallEnded(c)
		connlimit.MarkUnauthenticated(c) // Where the request had no credential.
	case http.StateNew, http.StateHijacked, http.StateClosed:
	}
}

// Serve accepts connections of l until Stop, which may be called first, and reports the server as ready. It then
// returns nil.
func (s *Server) Serve(l net.Listener) error {
	if _, ok := l.(*inprocess.Listener); ok { // no HTTP within the process
		s.grpc.SetReady(true)
		return s.grpc.Serve(l)
	}
	l = connlimit.Limit(connlimit.RetryAccept(l, s.log), s.limits, s.log)
	http2, http1 := Split(l)
	failed := make(chan error, 2)
	go func() { failed <- s.grpc.Serve(http2) }()
	go func() { failed <- s.http.Serve(http1) }()
	s.grpc.SetReady(true)
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

// Unready makes health checks report that the server is not serving. The server still accepts calls.
func (s *Server) Unready() { s.grpc.SetReady(false) }

// Stop ends gRPC calls that only wait, waits for other calls in flight, and cancels those that still run when ctx ends.
func (s *Server) Stop(ctx context.Context) error {
	s.grpc.SetReady(false)
	var drained sync.WaitGroup
	drained.Go(func() { s.grpc.Drain(ctx) })
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	drained.Wait()
	return err
}
