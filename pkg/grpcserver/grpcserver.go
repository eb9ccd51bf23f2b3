// Package grpcserver makes the gRPC servers of the platform: one order of interceptors, validation, health, reflection
// and limits, for calls over the network and for those of the same process.
//
// Interceptors, outermost first: recover, request id, log and metrics, status, auth, validate. So the log and the
// metrics see the final code, and every layer below may return an error of any kind. A caller over the network shows
// its credential before any of its request is read.
package grpcserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// slack is what the transport takes over a bound, so that a message over the bound gets an answer that names the bound,
// and one far over it is cut off unread.
const slack = 12 << 20

// Bytes that may be under way unread on one stream, and on one connection. They are fixed, since what grpc-go does to
// find better ones costs every small call two pings and two window updates, and the wake-ups for them (docs/adr/0018).
// They let one stream carry 1 GB/s over a round trip of a millisecond.
const (
	streamWindow     = 1 << 20
	connectionWindow = 4 << 20
)

// Options sets a server up. Auth and Logger are required.
type Options struct {
	// Logger gets one line per call at debug level, and failures that are ours at error level.
	Logger *slog.Logger
	// Auth knows the callers. Health and reflection need no credential; see pkg/bound for what calls without one may
	// take.
	Auth auth.Authenticator
	// Metrics counts and times calls; nil counts nowhere.
	Metrics *telemetry.CallMetrics
	// Services are services that the server has without their being registered, since it passes them on; reflection and
	// health name them too.
	Services []string
	// Blobs has the values of messages that stand apart (pkg/offload). Nil leaves references as they are, for a server
	// that passes messages on.
	Blobs offload.Store
	// Extra are further options, such as an unknown service handler. They hold for calls over the network.
	Extra []grpc.ServerOption
}

// workers are goroutines that take calls one after another, so that most calls find a stack that has grown to what they
// need; growing it costs a small call some 30 µs. Calls beyond them, and beside streams that hold them, get goroutines
// of their own.
const workers = 16

// Server is a gRPC server with health and reflection.
type Server struct {
	*grpc.Server
	chain  *chain
	health *health.Server
	passed []string
}

// RegisterService implements [grpc.ServiceRegistrar].
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s.Server.RegisterService(s.chain.guarded(desc), impl)
	for _, m := range desc.Methods {
		method := "/" + desc.ServiceName + "/" + m.MethodName
		s.chain.known[method], s.chain.plain[method] = true, !isOpen(method)
	}
	for _, m := range desc.Streams {
		s.chain.known["/"+desc.ServiceName+"/"+m.StreamName] = true
	}
}

// GetServiceInfo returns the services that reflection names.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo {
	all := s.Server.GetServiceInfo()
	for _, name := range s.passed {
		all[name] = grpc.ServiceInfo{}
	}
	return all
}

// New makes a server. Services are registered with it, then Serve is called once or more.
func New(o Options) (*Server, error) {
	validator, err := protovalidate.New()
	if err != nil {
		return nil, err
	}
	if o.Metrics == nil {
		o.Metrics = telemetry.NewCallMetrics(nil)
	}
	c := &chain{log: o.Logger, auth: o.Auth, metrics: o.Metrics, validator: validator, blobs: o.Blobs, known: map[string]bool{}, plain: map[string]bool{}, strangers: unauthenticatedCalls{max: bound.StrangerCalls}}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(bound.MessageBytes + slack),
		grpc.MaxSendMsgSize(bound.MessageBytes),
		grpc.MaxHeaderListSize(bound.RequestHeaderBytes), // told to clients, so that they refuse what is larger before they send it
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.NumStreamWorkers(workers),
		grpc.InTapHandle(c.tap),
		grpc.MaxConcurrentStreams(bound.ConnectionStreams),
		grpc.Creds(connections{insecure.NewCredentials(), newSharedWork()}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: bound.IdleGRPC, Time: bound.PeerPing, Timeout: bound.PeerAnswer}),
		grpc.StreamInterceptor(c.stream), // calls with one request are in the hands of guarded
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	s := &Server{
		Server: grpc.NewServer(append(options, o.Extra...)...), chain: c,
		health: health.NewServer(), passed: o.Services,
	}
	s.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
	healthv1.RegisterHealthServer(s, s.health)
	reflected := reflection.NewServerV1(reflection.ServerOptions{Services: s})
	reflectionv1.RegisterServerReflectionServer(s, reflected)
	reflectionv1alpha.RegisterServerReflectionServer(s, reflection.NewServer(reflection.ServerOptions{Services: s}))
	return s, nil
}

// SetReady reports whether the server takes calls; health checks tell it on.
func (s *Server) SetReady(ready bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthv1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	for name := range s.GetServiceInfo() {
		s.health.SetServingStatus(name, status)
	}
}

// SetPeer has health checks tell whether a service behind this server answers, under the service's short name, such as
// toolexec.
func (s *Server) SetPeer(name string, answers bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if answers {
		status = healthv1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus(name, status)
}

// Serve takes connections of l until the server is stopped, and closes l. It then returns nil, also where the server
// was stopped before Serve had begun.
func (s *Server) Serve(l net.Listener) error {
	if err := s.Server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// cutGrace is how long [Server.Drain] waits for handlers whose calls it cut off.
const cutGrace = 2 * time.Second

// Drain says not ready, lets calls in flight end, and cuts those that still run when ctx ends. Handlers that go on all
// the same for two more seconds are given up: they may still run when Drain returns.
func (s *Server) Drain(ctx context.Context) {
	s.SetReady(false)
	done := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	s.Stop()
	late := time.NewTimer(cutGrace)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		s.chain.log.WarnContext(ctx, "calls that were cut off have not ended, and are given up", "waited", cutGrace)
	}
}
