// Package grpcserver makes the gRPC servers of the platform: one order of interceptors, validation, health, reflection
// and limits, for calls over the network and for those of the same process.
//
// Interceptors, outermost first: recover, request id, log and metrics, status, auth and span, validate. So the log and
// the metrics see the final code, and every layer below may return an error of any kind. A caller over the network is
// authenticated before any of its request is read.
package grpcserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

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

// slack is how far a message may exceed a bound in the transport: a message slightly over the bound gets an error that
// names the bound, and one far over it is cut off unread.
const slack = 12 << 20

// Flow-control windows of one stream, and of one connection, in bytes. They are fixed, since grpc-go's estimation of
// better ones costs every small call two pings and two window updates, and their wake-ups (docs/adr/0018). One stream
// can carry 1 GB/s over a round trip of a millisecond.
const (
	streamWindow     = 1 << 20
	connectionWindow = 4 << 20
)

// Options sets a server up. Auth and Logger are required.
type Options struct {
	// Logger gets one line per call at debug level, and failures that are ours at error level.
	Logger *slog.Logger
	// Auth authenticates callers. Health and reflection need no credential; see pkg/bound for the bounds of calls
	// without one.
	Auth auth.Authenticator
	// Metrics counts and times calls; nil counts nowhere.
	Metrics *telemetry.CallMetrics
	// Traces makes a span of each call whose caller is known; nil makes none.
	Traces *telemetry.Traces
	// Services are services that the server forwards without their being registered; reflection and health list them
	// too.
	Services []string
	// Blobs stores the offloaded values of messages (pkg/offload). Nil leaves references unchanged, for a server that
	// forwards messages.
	Blobs offload.Store
	// Room bounds the offloaded values that calls hold, of all servers that share it. Nil is one of its own, of
	// [bound.HeldBytes].
	Room *offload.Room
	// Service names the service in errors and in spans.
	Service string
	// Extra are further options, such as an unknown service handler. They hold for calls over the network.
	Extra []grpc.ServerOption
}

// workers are goroutines that handle calls one after another, so that most calls find a stack of sufficient size;
// growing it costs a small call some 30 µs. Further calls, and calls beside streams that occupy the workers, get
// goroutines of their own.
const workers = 64

// Server is a gRPC server with health and reflection.
type Server struct {
	*grpc.Server
	chain    *chain
	stop     context.CancelFunc // ends the chain's calls that wait
	health   *health.Server
	passed   []string
	services map[string]service // that were registered, by name
}

// service is what a server was registered with.
type service struct {
	desc *grpc.ServiceDesc
	impl any
}

// RegisterService implements [grpc.ServiceRegistrar].
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s.services[desc.ServiceName] = service{desc, impl}
	s.Server.RegisterService(s.chain.guarded(desc), impl)
	s.chain.know(desc)
}

// Include makes s serve a service of another server of its process too, as if s forwarded the calls, but without a
// connection between the two: both authenticate, count and trace a call, and the other validates its messages and keeps
// their bounds. The other server must be stopped after s. Include returns false if the other does not have the service.
// It must be called before Serve.
func (s *Server) Include(other *Server, name string) bool {
	found, ok := other.services[name]
	if ok {
		s.Server.RegisterService(s.chain.including(other.chain, found.desc), found.impl)
		s.chain.know(found.desc)
	}
	return ok
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
	if o.Metrics == nil {
		o.Metrics = telemetry.NewCallMetrics(nil)
	}
	if o.Room == nil {
		o.Room = offload.NewRoom(bound.HeldBytes)
	}
	stopping, stop := context.WithCancel(context.Background())
	c := &chain{stopping: stopping, log: o.Logger, auth: o.Auth, metrics: o.Metrics, traces: o.Traces, blobs: o.Blobs, room: o.Room, service: o.Service, known: map[string]bool{}, plain: map[string]bool{}, included: map[string]bool{}, strangers: unauthenticatedCalls{max: bound.StrangerCalls}}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(bound.MessageBytes + slack),
		grpc.MaxSendMsgSize(bound.MessageBytes),
		grpc.MaxHeaderListSize(bound.RequestHeaderBytes), // sent to clients, so that they refuse larger ones themselves
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
		Server: grpc.NewServer(append(options, o.Extra...)...), chain: c, stop: stop,
		health: health.NewServer(), passed: o.Services, services: map[string]service{},
	}
	s.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
	healthv1.RegisterHealthServer(s, s.health)
	reflected := reflection.NewServerV1(reflection.ServerOptions{Services: s})
	reflectionv1.RegisterServerReflectionServer(s, reflected)
	reflectionv1alpha.RegisterServerReflectionServer(s, reflection.NewServer(reflection.ServerOptions{Services: s}))
	return s, nil
}

// SetReady sets whether the server accepts calls; health checks report it.
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

// SetPeer makes health checks report whether a service behind this server answers, under the service's short name, such
// as toolexec.
func (s *Server) SetPeer(name string, answers bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if answers {
		status = healthv1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus(name, status)
}

// Serve accepts connections of l until the server is stopped, and closes l. It then returns nil, also if the server was
// stopped before Serve began.
func (s *Server) Serve(l net.Listener) error {
	if err := s.Server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// cutGrace is how long [Server.Drain] waits for handlers whose calls it cut off.
const cutGrace = 2 * time.Second

// Drain reports not ready, ends calls that wait (see [Waits]), waits for other calls in flight, and cancels those that
// still run when ctx ends. Handlers that continue for two more seconds are abandoned: they may still run when Drain
// returns.
func (s *Server) Drain(ctx context.Context) {
	s.SetReady(false)
	s.stop()
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
