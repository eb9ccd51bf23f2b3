package grpcserver_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// shield is a server on the network that knows one token, and the metrics of its calls.
type shield struct {
	*service
	address string
	metrics *prometheus.Registry
}

func serveShield(t *testing.T) *shield {
	t.Helper()
	s := &shield{service: &service{}, metrics: prometheus.NewRegistry()}
	server, err := grpcserver.New(grpcserver.Options{
		Logger: slog.New(slog.DiscardHandler), Metrics: telemetry.NewCallMetrics(s.metrics),
		Auth:  auth.NewTokens("", map[string]config.Secret{"admin": config.NewSecret("right")}),
		Extra: []grpc.ServerOption{grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.Unimplemented, "no") })},
	})
	require.NoError(t, err)
	toolv1.RegisterToolServiceServer(server, s.service)
	server.SetReady(true)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		assert.NoError(t, waittest.For(t, served, "the server to end"))
	})
	return s
}

// dial connects with a token, or none.
func (s *shield) dial(t *testing.T, token string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpcclient.New(s.address, grpcclient.Options{Token: config.NewSecret(token)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return conn
}

// pipes is a listener whose connections are dialled within the process, so that the clock may be a test's.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) dial(context.Context, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	return client, nil
}

// A caller without a credential is refused by its headers: the server waits for no byte of the request.
func TestTheCredentialIsCheckedBeforeTheRequestIsRead(t *testing.T) {
	t.Parallel()
	s := serveShield(t)
	for _, token := range []string{"", "wrong"} {
		conn := s.dial(t, token)
		for _, method := range []string{toolv1.ToolService_ListTools_FullMethodName, toolv1.ToolService_ExecuteTools_FullMethodName, "/no.such.Service/Method"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			// Both sides may send, so that the client sends its headers and waits.
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			require.NoError(t, err)
			err = stream.RecvMsg(&toolv1.ListToolsResponse{})
			assert.True(t, rpcerr.Is(rpcerr.FromStatus(err), errorsv1.ErrorReason_ERROR_REASON_TOKEN_INVALID), "%s with token %q, of which nothing was sent: %v", method, token, err)
			cancel()
		}
	}
}

// A call is one rejected credential in the log, although its credential is looked at before its request is read too.
func TestARejectedCredentialIsCountedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		logger := slog.New(slog.NewTextHandler(&log, nil))
		server, err := grpcserver.New(grpcserver.Options{Logger: slog.New(slog.DiscardHandler), Auth: auth.Logged(auth.NewTokens("", nil), logger)})
		require.NoError(t, err)
		toolv1.RegisterToolServiceServer(server, &service{})
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(l.dial))
		require.NoError(t, err)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer wrong")
		for range 3 {
			_, err = toolv1.NewToolServiceClient(conn).ListTools(ctx, listing())
			require.Error(t, err)
		}
		time.Sleep(time.Minute) // Lines are at least ten seconds apart.
		_, err = toolv1.NewToolServiceClient(conn).ListTools(ctx, listing())
		require.Error(t, err)
		require.NoError(t, conn.Close())
		server.Stop()
		require.NoError(t, <-served)
		assert.Contains(t, log.String(), "rejected=1 ")
		assert.Contains(t, log.String(), "rejected=3 ", "the two after the first line, and the one that wrote this line")
	})
}

// However many calls without a right credential come on one connection, one after another or at once, each is refused
// by name.
func TestEveryCallWithoutARightCredentialIsRefused(t *testing.T) {
	t.Parallel()
	s := serveShield(t)
	const inARow, atOnce = 1100, 300
	tools := toolv1.NewToolServiceClient(s.dial(t, "wrong"))
	refused := func(ctx context.Context) {
		_, err := tools.ListTools(ctx, listing(), grpc.WaitForReady(false))
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_TOKEN_INVALID), "%v", err)
	}
	within := waittest.Context(t)
	for i := range inARow {
		if i%2 == 0 {
			refused(t.Context()) // without a deadline
		} else {
			refused(within)
		}
	}
	var calls sync.WaitGroup
	for range atOnce {
		calls.Go(func() { refused(within) })
	}
	waittest.Return(t, calls.Wait, "calls at once")
}

// A caller with a credential is not metered, from its first call on.
func TestCallsWithACredentialAreNotMetered(t *testing.T) {
	t.Parallel()
	s := serveShield(t)
	health := healthv1.NewHealthClient(s.dial(t, "right"))
	var calls sync.WaitGroup
	for range 5 * bound.StrangerCalls {
		calls.Go(func() {
			watch, err := health.Watch(waittest.Context(t), &healthv1.HealthCheckRequest{})
			if assert.NoError(t, err) {
				_, err = watch.Recv()
				assert.NoError(t, err)
			}
		})
	}
	waittest.Return(t, calls.Wait, "watches at once")
}

// An answer that is larger than what may lie unsent is sent, and so is what follows it on its stream and on others.
func TestAStrangerThatReadsHasLargeAnswers(t *testing.T) {
	t.Parallel()
	s := serveShield(t)
	conn := s.dial(t, "")
	var streams sync.WaitGroup
	for range 4 {
		streams.Go(func() {
			reflected, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(waittest.Context(t))
			if !assert.NoError(t, err) {
				return
			}
			total := 0
			for total < 4*bound.StrangerBytes && err == nil {
				_ = reflected.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{
					FileByFilename: "google/protobuf/descriptor.proto",
				}})
				var answer *reflectionv1.ServerReflectionResponse
				answer, err = reflected.Recv()
				total += proto.Size(answer)
			}
			assert.NoError(t, err)
		})
	}
	waittest.Return(t, streams.Wait, "reflection")
}

// Without a credential messages are small, also of services that take large ones from others.
func TestWithoutACredentialMessagesAreSmall(t *testing.T) {
	t.Parallel()
	s := serveShield(t)
	name := strings.Repeat("x", bound.StrangerMessageBytes)
	check := func(token, service string) error {
		_, err := healthv1.NewHealthClient(s.dial(t, token)).Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		return err
	}
	require.NoError(t, check("", ""))
	assert.True(t, rpcerr.Is(check("", name), errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE))
	assert.Equal(t, codes.NotFound, rpcerr.Code(check("right", name)), "a known caller may ask more")

	conn := s.dial(t, "")
	watch, err := healthv1.NewHealthClient(conn).Watch(waittest.Context(t), &healthv1.HealthCheckRequest{Service: name})
	require.NoError(t, err)
	_, err = watch.Recv()
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
	reflected, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(waittest.Context(t))
	require.NoError(t, err)
	ask := func(symbol string) (*reflectionv1.ServerReflectionResponse, error) {
		require.NoError(t, reflected.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol}}))
		return reflected.Recv()
	}
	answer, err := ask("evalfleet.tool.v1.ToolService")
	require.NoError(t, err)
	assert.NotEmpty(t, answer.GetFileDescriptorResponse().GetFileDescriptorProto())
	_, err = ask(name)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
}

// However many calls without a credential are held, another health check is answered: the oldest of them ends.
func TestWithoutACredentialTheOldestCallMakesRoom(t *testing.T) {
	t.Parallel()
	s := serveShield(t)
	// The calls are held until the end of the test, however long it takes to make them all.
	held, cancel := context.WithTimeout(t.Context(), 5*waittest.Bound)
	defer cancel()
	health := healthv1.NewHealthClient(s.dial(t, ""))
	known, err := healthv1.NewHealthClient(s.dial(t, "right")).Watch(held, &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = known.Recv()
	require.NoError(t, err)
	ended := make(chan int, 2*bound.StrangerCalls)
	for i := range 2 * bound.StrangerCalls {
		watch, err := health.Watch(held, &healthv1.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = watch.Recv()
		require.NoError(t, err)
		go func() {
			if _, err := watch.Recv(); rpcerr.Code(err) == codes.ResourceExhausted {
				ended <- i
			}
		}()
	}
	for range bound.StrangerCalls {
		select {
		case i := <-ended:
			assert.Less(t, i, bound.StrangerCalls, "a newer one was ended")
		case <-time.After(time.Minute):
			require.FailNow(t, "calls without a credential are not ended to make room")
		}
	}
	_, err = health.Check(t.Context(), &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	assert.NoError(t, known.Context().Err(), "a known caller's watch lives on")
}

// Names that callers make up take no room in the metrics.
func TestMethodsThatNobodyServesShareALabel(t *testing.T) {
	t.Parallel()
	s := serveShield(t)
	for _, token := range []string{"", "right"} {
		conn := s.dial(t, token)
		for i := range 20 {
			err := conn.Invoke(t.Context(), "/made.up/Method"+strconv.Itoa(i), &healthv1.HealthCheckRequest{}, &healthv1.HealthCheckResponse{})
			require.Error(t, err)
		}
	}
	methods := map[string]bool{}
	families, err := s.metrics.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "method" {
					methods[l.GetValue()] = true
				}
			}
		}
	}
	assert.Equal(t, map[string]bool{"unknown": true}, methods)
}

// A stream whose client reads nothing ends when its time has passed, and so does its handler. One whose client reads
// lives on, however long it takes.
func TestAStreamThatNobodyReadsEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		server, err := grpcserver.New(grpcserver.Options{Logger: slog.New(slog.DiscardHandler), Auth: auth.NewTokens("", map[string]config.Secret{"admin": config.NewSecret("right")})})
		require.NoError(t, err)
		why := make(chan error, 1)
		flood := func(_ *toolv1.ExecuteToolsRequest, stream toolv1.ToolService_ExecuteToolsServer) error {
			for {
				if err := stream.Send(&toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Progress{Progress: &toolv1.ToolProgress{CallId: strings.Repeat("x", 1000)}}}); err != nil {
					why <- err
					return err
				}
			}
		}
		pace := func(_ *toolv1.ExecuteToolsRequest, stream toolv1.ToolService_ExecuteToolsServer) error {
			time.Sleep(10 * bound.UnreadStream)
			return stream.Send(&toolv1.ExecuteToolsResponse{})
		}
		s := &service{}
		toolv1.RegisterToolServiceServer(server, s)
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(l.dial))
		require.NoError(t, err)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer right")
		s.execute = pace
		stream, err := toolv1.NewToolServiceClient(conn).ExecuteTools(ctx, executing())
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		_, err = stream.Recv()
		require.ErrorIs(t, err, io.EOF)

		s.execute = flood
		_, err = toolv1.NewToolServiceClient(conn).ExecuteTools(ctx, executing())
		require.NoError(t, err)
		select {
		case err := <-why:
			assert.Equal(t, codes.DeadlineExceeded, rpcerr.Code(err), "%v", err)
		case <-time.After(2 * bound.UnreadStream):
			assert.Fail(t, "the handler of a stream that nobody reads still writes")
		}
		require.NoError(t, conn.Close())
		server.Stop()
		require.NoError(t, <-served)
	})
}

// The server works for clients without a right token at a bounded rate. A client that asks for its
// health a few times a second waits for none of them, and every call is answered in the end.
func TestWorkForStrangersIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			flooding = 4
			during   = 3 * time.Second
			call     = 10 // as bound.StrangerWork counts
			most     = (bound.StrangerWork + flooding*bound.StrangerOwnWork) * int64(during/time.Second+1) / call
		)
		l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		server, err := grpcserver.New(grpcserver.Options{
			Logger: slog.New(slog.DiscardHandler),
			Auth:   auth.NewTokens("", map[string]config.Secret{"admin": config.NewSecret("right")}),
		})
		require.NoError(t, err)
		toolv1.RegisterToolServiceServer(server, &service{})
		server.SetReady(true)
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		dial := func() *grpc.ClientConn {
			conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(l.dial))
			require.NoError(t, err)
			return conn
		}
		var (
			clients sync.WaitGroup
			refused atomic.Int64
		)
		end := time.Now().Add(during)
		for range flooding {
			conn := dial()
			clients.Go(func() {
				for time.Now().Before(end) && refused.Load() < most { // Without a bound the clock would not move.
					_, err := toolv1.NewToolServiceClient(conn).ListTools(t.Context(), listing())
					assert.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
					refused.Add(1)
				}
				assert.NoError(t, conn.Close())
			})
		}
		calm := dial()
		clients.Go(func() {
			for time.Now().Before(end) {
				asked := time.Now()
				_, err := healthv1.NewHealthClient(calm).Check(t.Context(), &healthv1.HealthCheckRequest{})
				assert.NoError(t, err)
				assert.Zero(t, time.Since(asked), "a health check waits for the others")
				time.Sleep(time.Second / 3)
			}
			assert.NoError(t, calm.Close())
		})
		clients.Wait()
		assert.Less(t, refused.Load(), most)
		assert.Greater(t, refused.Load(), most/4)
		t.Logf("%d calls refused in %v, at most %d", refused.Load(), during, most)
		server.Stop()
		require.NoError(t, <-served)
	})
}

// Connections of strangers have the shared work by turns, and what is no longer wanted takes none of it: neither the
// calls of a connection that has closed nor those that have ended.
func TestStrangersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			closing, busy = 40, 10 // connections
			calls         = 6      // of one connection, each of which waits for 10 ms of the work that is shared
			inTurn        = 300 * time.Millisecond
			atOnce        = 100 * time.Millisecond
		)
		l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		server, err := grpcserver.New(grpcserver.Options{Logger: slog.New(slog.DiscardHandler), Auth: auth.NewTokens("", nil)})
		require.NoError(t, err)
		server.SetReady(true)
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		dial := func() *grpc.ClientConn {
			conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(l.dial))
			require.NoError(t, err)
			return conn
		}
		ask := func(ctx context.Context, conn *grpc.ClientConn) {
			for range calls {
				stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
				require.NoError(t, err)
				require.NoError(t, stream.Send(&reflectionv1.ServerReflectionRequest{
					MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
				}))
			}
			synctest.Wait() // The server has all requests, at the same time.
		}
		patient := dial()
		check := func() time.Duration {
			asked := time.Now()
			_, err := healthv1.NewHealthClient(patient).Check(t.Context(), &healthv1.HealthCheckRequest{})
			assert.NoError(t, err)
			return time.Since(asked)
		}
		for check() == 0 { // Neither its own work nor the shared work is left.
		}

		for range closing {
			conn := dial()
			ask(t.Context(), conn)
			require.NoError(t, conn.Close())
		}
		assert.Less(t, check(), atOnce, "connections that have closed still count")

		ctx, cancel := context.WithTimeout(t.Context(), atOnce)
		defer cancel()
		for range busy {
			conn := dial()
			ask(ctx, conn)
			defer func() { assert.NoError(t, conn.Close()) }()
		}
		assert.Less(t, check(), inTurn, "one connection has several turns at once")
		<-ctx.Done()
		assert.Less(t, check(), atOnce, "calls that have ended still count")

		require.NoError(t, patient.Close())
		server.Stop()
		require.NoError(t, <-served)
	})
}
