package grpcserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/auth/authtest"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// service answers as a test configures it.
type service struct {
	toolv1.UnimplementedToolServiceServer
	workerv1.UnimplementedWorkerServiceServer
	list    func(context.Context, *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error)
	review  func(context.Context, *toolv1.ReviewToolsRequest) (*toolv1.ReviewToolsResponse, error)
	execute func(*toolv1.ExecuteToolsRequest, toolv1.ToolService_ExecuteToolsServer) error
	connect func(workerv1.WorkerService_ConnectServer) error
}

func (s *service) ListTools(ctx context.Context, r *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
	return s.list(ctx, r)
}

func (s *service) ReviewTools(ctx context.Context, r *toolv1.ReviewToolsRequest) (*toolv1.ReviewToolsResponse, error) {
	return s.review(ctx, r)
}

func (s *service) ExecuteTools(r *toolv1.ExecuteToolsRequest, stream toolv1.ToolService_ExecuteToolsServer) error {
	return s.execute(r, stream)
}

func (s *service) Connect(stream workerv1.WorkerService_ConnectServer) error {
	return s.connect(stream)
}

// form is a service, served, and a connection to it.
type form struct {
	*service
	server   *grpcserver.Server
	listener net.Listener
	conn     grpcclient.Conn
	tools    toolv1.ToolServiceClient
	worker   workerv1.WorkerServiceClient
	health   healthv1.HealthClient

	// The log and the metrics of the server's calls; the log is read when the server has ended.
	log     *bytes.Buffer
	metrics prometheus.Gatherer
}

// network listens on a free port.
func network(t testing.TB) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// dial connects to a listener over the network.
func dial(l net.Listener, o grpcclient.Options) (grpcclient.Conn, error) {
	return grpcclient.New(l.Addr().String(), o)
}

// forms are the ways from a client to a server.
var forms = map[string]struct {
	listen func(testing.TB) net.Listener
	dial   func(net.Listener, grpcclient.Options) (grpcclient.Conn, error)
	// included means that a server before it takes its calls.
	included bool
}{
	"network":  {listen: network, dial: dial},
	"included": {listen: network, dial: dial, included: true},
	"within": {
		listen: func(testing.TB) net.Listener { return inprocess.Listen() },
		dial: func(l net.Listener, o grpcclient.Options) (grpcclient.Conn, error) {
			return grpcclient.Within(l.(*inprocess.Listener), o)
		},
	},
}

// serveForm serves until the test ends.
func serveForm(t testing.TB, name string, level slog.Level) *form {
	t.Helper()
	return serveWith(t, name, level, nil)
}

// serveWith serves, with a store of bodies that server and client share; nil is none.
func serveWith(t testing.TB, name string, level slog.Level, blobs offload.Store) *form {
	t.Helper()
	return serveRoom(t, name, level, blobs, nil)
}

// serveRoom serves, with a room for what calls take from the store; nil is the usual one.
func serveRoom(t testing.TB, name string, level slog.Level, blobs offload.Store, room *offload.Room) *form {
	t.Helper()
	f := &form{service: &service{}, log: &bytes.Buffer{}}
	registry := prometheus.NewRegistry()
	f.metrics = registry
	server, err := grpcserver.New(grpcserver.Options{
		Logger:  slog.New(slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: level})),
		Auth:    authtest.Allow{Name: "test"},
		Metrics: telemetry.NewCallMetrics(registry).Of("tests"),
		Blobs:   blobs,
		Room:    room,
		Service: "toolexec",
	})
	require.NoError(t, err)
	f.server = server
	toolv1.RegisterToolServiceServer(server, f.service)
	workerv1.RegisterWorkerServiceServer(server, f.service)
	if forms[name].included {
		front, err := grpcserver.New(grpcserver.Options{Logger: slog.New(slog.DiscardHandler), Auth: authtest.Allow{Name: "test"}, Service: "front"})
		require.NoError(t, err)
		for service := range server.GetServiceInfo() {
			if strings.HasPrefix(service, "evalfleet.") {
				require.True(t, front.Include(server, service))
			}
		}
		require.False(t, front.Include(server, "evalfleet.unknown.v1.UnknownService"))
		t.Cleanup(server.Stop) // after the front
		server, f.server = front, front
	}
	server.SetReady(true)
	l := forms[name].listen(t)
	f.listener = l
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	f.conn, err = forms[name].dial(l, grpcclient.Options{Blobs: blobs})
	require.NoError(t, err)
	f.tools, f.worker, f.health = toolv1.NewToolServiceClient(f.conn), workerv1.NewWorkerServiceClient(f.conn), healthv1.NewHealthClient(f.conn)
	t.Cleanup(func() {
		assert.NoError(t, f.conn.Close())
		server.Stop()
		assert.NoError(t, waittest.For(t, served, "the server to end"))
	})
	return f
}

// inEveryForm tests a promise over the network, within the process, and at a server that includes the other: a caller
// cannot distinguish them.
func inEveryForm(t *testing.T, promise func(*testing.T, *form)) {
	t.Helper()
	for name := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			promise(t, serveForm(t, name, slog.LevelDebug))
		})
	}
}

func listing() *toolv1.ListToolsRequest { return &toolv1.ListToolsRequest{Parent: "projects/p"} }

func executing() *toolv1.ExecuteToolsRequest {
	return &toolv1.ExecuteToolsRequest{Parent: "projects/p", Calls: []*toolv1.ToolCall{{}}}
}

type valueKey struct{}

func TestHeadersTrailersAndDetailsArriveAndValuesDoNot(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		f.list = func(ctx context.Context, _ *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
			assert.Equal(t, []string{"1", "2"}, metadata.ValueFromIncomingContext(ctx, "asked"))
			assert.Nil(t, ctx.Value(valueKey{}))
			assert.NoError(t, grpc.SetHeader(ctx, metadata.Pairs("head", "a")))
			assert.NoError(t, grpc.SetTrailer(ctx, metadata.Pairs("trail", "z")))
			return nil, rpcerr.WorkerUnavailable("tool", "x", time.Second, "wait for it")
		}
		ctx := metadata.AppendToOutgoingContext(context.WithValue(t.Context(), valueKey{}, "mine"), "asked", "1", "asked", "2")
		var header, trailer metadata.MD
		_, err := f.tools.ListTools(ctx, listing(), grpc.Header(&header), grpc.Trailer(&trailer))
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_WORKER_UNAVAILABLE), "%v", err)
		assert.Equal(t, time.Second, rpcerr.RetryAfter(err))
		assert.Equal(t, []string{"a"}, header.Get("head"))
		assert.Equal(t, []string{"z"}, trailer.Get("trail"))
	})
}

func TestAFailureOfAServerArrivesAsItsHandlerSaysIt(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		fail := func() error { return rpcerr.ProviderResponseInvalid("v", 200, "no answer") }
		f.list = func(context.Context, *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) { return nil, fail() }
		f.execute = func(*toolv1.ExecuteToolsRequest, toolv1.ToolService_ExecuteToolsServer) error { return fail() }
		calls := map[string]func() error{
			"one answer": func() error {
				_, err := f.tools.ListTools(t.Context(), listing())
				return err
			},
			"stream": func() error {
				stream, err := f.tools.ExecuteTools(t.Context(), executing())
				if err == nil {
					_, err = stream.Recv()
				}
				return err
			},
		}
		for name, call := range calls {
			assert.True(t, rpcerr.Is(call(), errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RESPONSE_INVALID), name)
		}
		fail = func() error { panic("the cause") }
		for name, call := range calls {
			told, ok := rpcerr.As(call())
			require.True(t, ok, name)
			assert.Regexp(t, `"panic".*"request_id":"`+told.Metadata["requestId"]+`"`, f.log.String(), name)
		}
	})
}

func TestMessagesAreNotShared(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		answer := &toolv1.ListToolsResponse{NextPageToken: "kept"}
		f.list = func(_ context.Context, r *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
			r.Parent = "the handler's"
			return answer, nil
		}
		request := listing()
		got, err := f.tools.ListTools(t.Context(), request)
		require.NoError(t, err)
		got.NextPageToken = "the caller's"
		assert.Equal(t, "projects/p", request.GetParent())
		assert.Equal(t, "kept", answer.GetNextPageToken())
	})
}

func TestACallersEndReachesTheHandlerWithoutItsCause(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		begun, ended := make(chan struct{}), make(chan error, 1)
		f.execute = func(_ *toolv1.ExecuteToolsRequest, s toolv1.ToolService_ExecuteToolsServer) error {
			close(begun)
			<-s.Context().Done()
			ended <- context.Cause(s.Context())
			return s.Context().Err()
		}
		ctx, cancel := context.WithCancelCause(waittest.Context(t))
		stream, err := f.tools.ExecuteTools(ctx, executing())
		require.NoError(t, err)
		waittest.For(t, begun, "the call at its handler")
		cancel(errors.New("the caller's own"))
		assert.Equal(t, context.Canceled, waittest.For(t, ended, "the end of the handler's context"))
		_, err = stream.Recv()
		assert.Equal(t, codes.Canceled, rpcerr.Code(err))
	})
}

func TestADeadlineEndsTheWaitWhateverTheHandlerDoes(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		begun, end := make(chan bool, 100), make(chan struct{})
		defer close(end)
		f.list = func(ctx context.Context, _ *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
			_, has := ctx.Deadline()
			begun <- has
			waittest.Hold(t, end)
			return &toolv1.ListToolsResponse{}, nil
		}
		for timeout := 50 * time.Millisecond; len(begun) == 0; timeout *= 2 { // a busy machine may need longer to begin
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			_, err := f.tools.ListTools(ctx, listing())
			cancel()
			require.Equal(t, codes.DeadlineExceeded, rpcerr.Code(err))
		}
		assert.True(t, waittest.For(t, begun, "the call at its handler"))
	})
}

func TestStreamsGoBothWaysInOrder(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		f.connect = func(s workerv1.WorkerService_ConnectServer) error {
			for {
				got, err := s.Recv()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				if err := s.Send(&workerv1.ConnectResponse{Frame: &workerv1.ConnectResponse_Registered{Registered: &workerv1.Registered{Worker: got.GetRegister().GetWorker()}}}); err != nil {
					return err
				}
			}
		}
		s, err := f.worker.Connect(waittest.Context(t))
		require.NoError(t, err)
		names := strings.Split("abcdefghijklmnopqrstuvwxyz", "")
		for _, name := range names {
			require.NoError(t, s.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: &workerv1.Register{Worker: name, Offers: []*workerv1.Offer{{Kind: "tool", Name: "a"}}}}}))
		}
		require.NoError(t, s.CloseSend())
		var got []string
		for {
			answer, err := s.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			got = append(got, answer.GetRegistered().GetWorker())
		}
		assert.Equal(t, names, got)
		_, err = s.Recv()
		assert.ErrorIs(t, err, io.EOF, "the end stays the end")
	})
}

func TestWhoSendsToAHandlerThatHasEndedHearsHow(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		f.connect = func(s workerv1.WorkerService_ConnectServer) error {
			_ = s.Send(&workerv1.ConnectResponse{})
			return rpcerr.InvalidRequest("enough")
		}
		s, err := f.worker.Connect(waittest.Context(t))
		require.NoError(t, err)
		assert.Eventually(t, func() bool { return errors.Is(s.Send(&workerv1.ConnectRequest{}), io.EOF) }, time.Minute, time.Millisecond)
		_, err = s.Recv()
		require.NoError(t, err, "what was sent before is there")
		_, err = s.Recv()
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
	})
}

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		f.list = func(context.Context, *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
			return &toolv1.ListToolsResponse{NextPageToken: strings.Repeat("x", bound.MessageBytes)}, nil
		}
		f.execute = func(_ *toolv1.ExecuteToolsRequest, s toolv1.ToolService_ExecuteToolsServer) error {
			return s.Send(&toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Started{Started: &toolv1.ToolStarted{CallId: strings.Repeat("x", bound.MessageBytes)}}})
		}
		_, err := f.tools.ListTools(t.Context(), listing())
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT), "an answer: %v", err)
		stream, err := f.tools.ExecuteTools(waittest.Context(t), executing())
		require.NoError(t, err)
		_, err = stream.Recv()
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT), "an event: %v", err)
		_, err = f.tools.ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: strings.Repeat("x", 4*bound.MessageBytes)})
		assert.Equal(t, codes.ResourceExhausted, rpcerr.Code(err), "a request: %v", err)
	})
}

// Where both ends share the bodies, a call has values of any size, and no message of it is over the bound: the server
// of TestMessagesAreBounded refuses to take and to send one.
func TestLargeValuesGoBesideTheMessages(t *testing.T) {
	t.Parallel()
	for name := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blobs, err := disk.Open(disk.Config{Dir: t.TempDir()})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, blobs.Close()) })
			f := serveWith(t, name, slog.LevelError, blobs)
			large := strings.Repeat("x", 5*bound.MessageBytes)
			asked := executing()
			asked.Calls[0].ArgumentsJson = large
			before := proto.CloneOf(asked)
			f.review = func(_ context.Context, r *toolv1.ReviewToolsRequest) (*toolv1.ReviewToolsResponse, error) {
				assert.Empty(t, r.GetOffloaded())
				return &toolv1.ReviewToolsResponse{Reviews: []*toolv1.ToolReview{{Call: r.GetCalls()[0]}}}, nil
			}
			reviewed, err := f.tools.ReviewTools(t.Context(), &toolv1.ReviewToolsRequest{Parent: asked.GetParent(), Calls: asked.GetCalls()})
			require.NoError(t, err)
			assert.Equal(t, large, reviewed.GetReviews()[0].GetCall().GetArgumentsJson())
			assert.Empty(t, reviewed.GetOffloaded())

			f.execute = func(r *toolv1.ExecuteToolsRequest, s toolv1.ToolService_ExecuteToolsServer) error {
				assert.True(t, proto.Equal(before, r), "a request is whole")
				return s.Send(&toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Result{Result: &toolv1.ToolResult{ArgumentsJson: r.GetCalls()[0].GetArgumentsJson()}}})
			}
			stream, err := f.tools.ExecuteTools(waittest.Context(t), asked)
			require.NoError(t, err)
			got, err := stream.Recv()
			require.NoError(t, err)
			assert.Equal(t, large, got.GetResult().GetArgumentsJson())
			assert.True(t, proto.Equal(before, asked), "the caller's message stays as it is")

			asked.Calls[0].ArgumentsJson = strings.Repeat("x", bound.OffloadedBytes+1)
			stream, err = f.tools.ExecuteTools(waittest.Context(t), asked)
			require.NoError(t, err)
			_, err = stream.Recv()
			assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
			assert.ErrorContains(t, err, fmt.Sprint(bound.OffloadedBytes))
		})
	}
}

// A request of some hundred bytes can name values of many megabytes. A call beyond the room is refused at once, since a
// call that waited for room could wait for calls that wait for it.
func TestWhatCallsHoldOfTheStoreIsBoundedTogether(t *testing.T) {
	t.Parallel()
	for name := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blobs, err := disk.Open(disk.Config{Dir: t.TempDir()})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, blobs.Close()) })
			f := serveRoom(t, name, slog.LevelError, blobs, offload.NewRoom(3*offload.LargeBytes))
			large := strings.Repeat("x", 2*offload.LargeBytes)
			asked := &toolv1.ReviewToolsRequest{Parent: "projects/default", Calls: []*toolv1.ToolCall{{Id: "1", Function: "f", ArgumentsJson: large}}}
			executed := &toolv1.ExecuteToolsRequest{Parent: "projects/default", RequestId: "r", Calls: asked.GetCalls()}
			begun, end := make(chan struct{}), make(chan struct{})
			f.review = func(context.Context, *toolv1.ReviewToolsRequest) (*toolv1.ReviewToolsResponse, error) {
				begun <- struct{}{}
				<-end
				return &toolv1.ReviewToolsResponse{}, nil
			}
			f.execute = func(*toolv1.ExecuteToolsRequest, toolv1.ToolService_ExecuteToolsServer) error {
				begun <- struct{}{}
				<-end
				return nil
			}
			execute := func() error {
				stream, err := f.tools.ExecuteTools(waittest.Context(t), executed)
				if err == nil {
					_, err = stream.Recv()
				}
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			review := func() error {
				_, err := f.tools.ReviewTools(waittest.Context(t), asked)
				return err
			}
			for _, call := range []func() error{review, execute} {
				ended := make(chan error, 1)
				go func() { ended <- call() }()
				waittest.For(t, begun, "the first call")
				for _, beside := range []func() error{review, execute} {
					err := beside()
					assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE), "%v", err)
					assert.Positive(t, rpcerr.RetryAfter(err))
				}
				end <- struct{}{}
				require.NoError(t, waittest.For(t, ended, "the first call to end"))
			}
		})
	}
}

// Work with a key goes on when its caller has left, with the values of the request.
func TestWorkThatOutlivesItsCallHoldsOfTheStore(t *testing.T) {
	t.Parallel()
	blobs, err := disk.Open(disk.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, blobs.Close()) })
	f := serveRoom(t, "network", slog.LevelError, blobs, offload.NewRoom(3*offload.LargeBytes))
	runner, err := effect.New(effect.Config{Ledger: &memory.Ledger{}, Owner: "toolexec/1"})
	require.NoError(t, err)
	end := make(chan struct{})
	f.review = func(ctx context.Context, _ *toolv1.ReviewToolsRequest) (*toolv1.ReviewToolsResponse, error) {
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		_, err := runner.Do(ctx, effect.Request{Key: effect.Key{Project: "default", ID: "k"}}, func(context.Context, effect.Attempt) ([]byte, error) {
			leave()
			<-end
			return nil, nil
		})
		assert.ErrorIs(t, err, context.Canceled)
		return &toolv1.ReviewToolsResponse{}, nil
	}
	large := strings.Repeat("x", 2*offload.LargeBytes)
	review := func() error {
		_, err := f.tools.ReviewTools(waittest.Context(t), &toolv1.ReviewToolsRequest{Parent: "projects/default", Calls: []*toolv1.ToolCall{{Id: "1", Function: "f", ArgumentsJson: large}}})
		return err
	}
	require.NoError(t, review())
	f.review = func(context.Context, *toolv1.ReviewToolsRequest) (*toolv1.ReviewToolsResponse, error) {
		return &toolv1.ReviewToolsResponse{}, nil
	}
	err = review()
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE), "%v", err)
	close(end)
	require.NoError(t, runner.Drain(waittest.Context(t)))
	require.NoError(t, review())
}

// What a stream holds is its last message: a long stream is not refused for what it has handled.
func TestAStreamHoldsOfTheStoreItsLastMessage(t *testing.T) {
	t.Parallel()
	blobs, err := disk.Open(disk.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, blobs.Close()) })
	f := serveRoom(t, "network", slog.LevelError, blobs, offload.NewRoom(3*offload.LargeBytes))
	got := make(chan int)
	f.connect = func(stream workerv1.WorkerService_ConnectServer) error {
		for {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			got <- len(m.GetResult().GetPayloadJson())
		}
	}
	stream, err := f.worker.Connect(waittest.Context(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: &workerv1.Register{Worker: "w", Offers: []*workerv1.Offer{{Kind: "tool", Name: "a"}}}}}))
	waittest.For(t, got, "the first frame")
	large := strings.Repeat("x", 2*offload.LargeBytes)
	for range 3 {
		require.NoError(t, stream.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Result{Result: &workerv1.CallResult{Key: "k", Outcome: &workerv1.CallResult_PayloadJson{PayloadJson: large}}}}))
		assert.Equal(t, len(large), waittest.For(t, got, "a result"))
	}
}

// A client that has no store sends what it has put into the project's blobs, and reads from there what an answer names.
func TestAClientWithoutAStoreSendsAndGetsReferences(t *testing.T) {
	t.Parallel()
	blobs, err := disk.Open(disk.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, blobs.Close()) })
	f := serveWith(t, "within", slog.LevelError, blobs)
	conn, err := forms["within"].dial(f.listener, grpcclient.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	large := strings.Repeat("x", 5*bound.MessageBytes)
	ref, err := blobs.Put(t.Context(), "default", strings.NewReader(large), "")
	require.NoError(t, err)
	f.review = func(_ context.Context, r *toolv1.ReviewToolsRequest) (*toolv1.ReviewToolsResponse, error) {
		return &toolv1.ReviewToolsResponse{Reviews: []*toolv1.ToolReview{{Call: r.GetCalls()[0]}}}, nil
	}
	asked := &toolv1.ReviewToolsRequest{
		Parent: "projects/default", Calls: []*toolv1.ToolCall{{Function: "f"}},
		Offloaded: []*contentv1.OffloadedField{{Field: "calls[0].arguments_json", Blob: &contentv1.BlobRef{Hash: ref.Hash}}},
	}
	got, err := toolv1.NewToolServiceClient(conn).ReviewTools(t.Context(), asked)
	require.NoError(t, err)
	require.Len(t, got.GetOffloaded(), 1)
	assert.Equal(t, "reviews[0].call.arguments_json", got.GetOffloaded()[0].GetField())
	assert.Equal(t, ref.Hash, got.GetOffloaded()[0].GetBlob().GetHash())
	assert.EqualValues(t, len(large), got.GetOffloaded()[0].GetBlob().GetSize())

	asked.Offloaded[0].Blob.Hash = strings.Repeat("0", 64)
	_, err = toolv1.NewToolServiceClient(conn).ReviewTools(t.Context(), asked)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
	assert.True(t, rpcerr.Concerns("offloaded[0].blob", err), "%v", err)
}

func TestAfterTheOneAnswerComesTheEnd(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		f.list = func(context.Context, *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
			return &toolv1.ListToolsResponse{}, nil
		}
		for _, desc := range []*grpc.StreamDesc{{}, {ClientStreams: true}} {
			s, err := f.conn.NewStream(t.Context(), desc, toolv1.ToolService_ListTools_FullMethodName)
			require.NoError(t, err)
			require.NoError(t, s.SendMsg(listing()))
			require.NoError(t, s.CloseSend())
			require.NoError(t, s.RecvMsg(&toolv1.ListToolsResponse{}))
			assert.ErrorIs(t, s.RecvMsg(&toolv1.ListToolsResponse{}), io.EOF)
		}
	})
}

func TestAnAnswerThatDoesNotComeIsAFault(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		f.execute = func(*toolv1.ExecuteToolsRequest, toolv1.ToolService_ExecuteToolsServer) error { return nil }
		s, err := f.conn.NewStream(t.Context(), &grpc.StreamDesc{}, toolv1.ToolService_ExecuteTools_FullMethodName)
		require.NoError(t, err)
		require.NoError(t, s.SendMsg(executing()))
		assert.Equal(t, codes.Internal, rpcerr.Code(s.RecvMsg(&toolv1.ExecuteToolsResponse{})))
	})
}

func TestWhatNobodyHasIsUnimplemented(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		for _, method := range []string{"/evalfleet.tool.v1.ToolService/Nothing", "/nobody.v1.Nothing/ListTools", "/nonsense", "evalfleet.tool.v1.ToolService/ListTools"} {
			err := f.conn.Invoke(t.Context(), method, listing(), &toolv1.ListToolsResponse{})
			assert.Equal(t, codes.Unimplemented, rpcerr.Code(err), "%s: %v", method, err)
		}
	})
}

func TestAConnectionThatIsClosedEndsItsCalls(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		begun, ended := make(chan struct{}), make(chan struct{})
		f.list = func(ctx context.Context, _ *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
			close(begun)
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		}
		go func() {
			waittest.Hold(t, begun)
			assert.NoError(t, f.conn.Close())
		}()
		_, err := f.tools.ListTools(t.Context(), listing())
		assert.Equal(t, codes.Canceled, rpcerr.Code(err), "%v", err)
		waittest.For(t, ended, "the handler to end")
		_, err = f.tools.ListTools(t.Context(), listing())
		assert.Equal(t, codes.Canceled, rpcerr.Code(err), "%v", err)
		f.conn = closed{}
	})
}

// closed is a connection that a test has closed.
type closed struct{ grpcclient.Conn }

func (closed) Close() error { return nil }

// draining begins a drain, and returns when it has begun, with the means to wait for its end.
func draining(t *testing.T, f *form) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(waittest.Context(t))
	defer cancel() // the drain would wait for the watch
	watch, err := f.health.Watch(ctx, &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	drained := make(chan struct{})
	for {
		state, err := watch.Recv()
		require.NoError(t, err)
		if state.GetStatus() == healthv1.HealthCheckResponse_NOT_SERVING {
			return drained
		}
		go func() {
			defer close(drained)
			f.server.Drain(context.Background())
		}()
	}
}

func TestADrainWaitsAndAStopCuts(t *testing.T) {
	t.Parallel()
	t.Run("drain", func(t *testing.T) {
		t.Parallel()
		inEveryForm(t, func(t *testing.T, f *form) {
			begun, end := make(chan struct{}), make(chan struct{})
			f.list = func(context.Context, *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
				close(begun)
				waittest.Hold(t, end)
				return &toolv1.ListToolsResponse{NextPageToken: "done"}, nil
			}
			answered := make(chan *toolv1.ListToolsResponse, 1)
			go func() {
				answer, err := f.tools.ListTools(t.Context(), listing())
				assert.NoError(t, err)
				answered <- answer
			}()
			waittest.For(t, begun, "the call at its handler")
			drained := draining(t, f)
			select {
			case <-drained:
				t.Error("drained with a call under way")
			default:
			}
			close(end)
			assert.Equal(t, "done", waittest.For(t, answered, "the answer of the call that was under way").GetNextPageToken())
			waittest.For(t, drained, "the drain to return")
		})
	})
	t.Run("a connection that is closed meanwhile", func(t *testing.T) {
		t.Parallel()
		inEveryForm(t, func(t *testing.T, f *form) {
			begun := make(chan struct{})
			f.list = func(ctx context.Context, _ *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
				close(begun)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			answered := make(chan error, 1)
			go func() {
				_, err := f.tools.ListTools(t.Context(), listing())
				answered <- err
			}()
			waittest.For(t, begun, "the call at its handler")
			drained := draining(t, f)
			require.NoError(t, f.conn.Close())
			assert.Error(t, waittest.For(t, answered, "the end of the call whose connection was closed"))
			waittest.For(t, drained, "the drain to return")
			f.conn = closed{}
		})
	})
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		inEveryForm(t, func(t *testing.T, f *form) {
			begun, drained, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
			f.execute = func(_ *toolv1.ExecuteToolsRequest, s toolv1.ToolService_ExecuteToolsServer) error {
				defer close(ended)
				close(begun)
				<-s.Context().Done()
				select {
				case <-drained:
					t.Error("drained while a handler that was cut off still runs: what it uses may be closed")
				case <-time.After(50 * time.Millisecond): // what it does to end
				}
				return nil
			}
			stream, err := f.tools.ExecuteTools(waittest.Context(t), executing())
			require.NoError(t, err)
			waittest.For(t, begun, "the call at its handler")
			over, cancel := context.WithCancel(t.Context())
			cancel()
			go func() {
				defer close(drained)
				f.server.Drain(over)
			}()
			_, err = stream.Recv()
			assert.Equal(t, codes.Unavailable, rpcerr.Code(err), "%v", err)
			waittest.For(t, ended, "the handler that was cut off to end")
			waittest.For(t, drained, "the drain to return")
		})
	})
}

// A handler that computes does not look at its context.
func TestADrainGivesUpAHandlerThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		begun, end := make(chan struct{}), make(chan struct{})
		f.list = func(context.Context, *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
			close(begun)
			waittest.Hold(t, end)
			return &toolv1.ListToolsResponse{}, nil
		}
		answered := make(chan error, 1)
		go func() {
			_, err := f.tools.ListTools(t.Context(), listing())
			answered <- err
		}()
		waittest.For(t, begun, "the call at its handler")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			f.server.Drain(over)
		}()
		assert.Equal(t, codes.Unavailable, rpcerr.Code(waittest.For(t, answered, "the end of the call")))
		waittest.For(t, drained, "the drain to return")
		close(end)
	})
}

func TestAStreamThatIsRefusedBeforeItsRequestTellsWhy(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		s, err := f.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/evalfleet.tool.v1.ToolService/Nothing")
		require.NoError(t, err)
		_, _ = s.Header() // which is complete when the call has ended
		require.NoError(t, s.SendMsg(executing()), "how it ended is told to who receives")
		require.Error(t, s.SendMsg(executing()), "it takes one message")
		require.NoError(t, s.CloseSend())
		err = s.RecvMsg(&toolv1.ExecuteToolsResponse{})
		assert.Equal(t, codes.Unimplemented, rpcerr.Code(err), "%v", err)
	})
}

func TestNoHandlerHearsOfACallThatHasEnded(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		var heard atomic.Bool
		f.list = func(context.Context, *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
			heard.Store(true)
			return &toolv1.ListToolsResponse{}, nil
		}
		f.execute = func(*toolv1.ExecuteToolsRequest, toolv1.ToolService_ExecuteToolsServer) error {
			heard.Store(true)
			return nil
		}
		left, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		for want, ctx := range map[codes.Code]context.Context{codes.Canceled: left, codes.DeadlineExceeded: late} {
			for range 100 { // a handler that is begun would not get far in each
				_, err := f.tools.ListTools(ctx, listing())
				require.Equal(t, want, rpcerr.Code(err), "%v", err)
				_, err = f.tools.ExecuteTools(ctx, executing())
				require.Equal(t, want, rpcerr.Code(err), "%v", err)
			}
		}
		f.server.Drain(t.Context())
		assert.False(t, heard.Load())
	})
}

// standstill waits until a count goes up no more, and returns it.
func standstill(t *testing.T, count *atomic.Int64) int64 {
	t.Helper()
	for before, begun := int64(-1), time.Now(); ; {
		require.Less(t, time.Since(begun), waittest.Bound, "nothing is sent, or sending does not pause")
		now := count.Load()
		if now > 0 && now == before {
			return now
		}
		before = now
		<-time.After(100 * time.Millisecond)
	}
}

func TestWhoSendsIsHeldUpByWhoDoesNotReadUntilTheCallEnds(t *testing.T) {
	t.Parallel()
	const size, many = 64 << 10, 1000
	t.Run("the handler", func(t *testing.T) {
		t.Parallel()
		inEveryForm(t, func(t *testing.T, f *form) {
			var sent atomic.Int64
			ended := make(chan error, 1)
			f.execute = func(_ *toolv1.ExecuteToolsRequest, s toolv1.ToolService_ExecuteToolsServer) (err error) {
				event := &toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Started{Started: &toolv1.ToolStarted{CallId: strings.Repeat("x", size)}}}
				for sent.Load() < many && err == nil {
					if err = s.Send(event); err == nil {
						sent.Add(1)
					}
				}
				ended <- err
				return err
			}
			ctx, cancel := context.WithCancel(waittest.Context(t))
			defer cancel()
			_, err := f.tools.ExecuteTools(ctx, executing())
			require.NoError(t, err)
			assert.Less(t, standstill(t, &sent), int64(many/10))
			cancel()
			assert.Error(t, waittest.For(t, ended, "the end of the handler that sends"))
		})
	})
	t.Run("the caller", func(t *testing.T) {
		t.Parallel()
		inEveryForm(t, func(t *testing.T, f *form) {
			end := make(chan struct{})
			defer close(end)
			f.connect = func(workerv1.WorkerService_ConnectServer) error {
				waittest.Hold(t, end) // it heeds not even its context
				return nil
			}
			ctx, cancel := context.WithCancel(waittest.Context(t))
			defer cancel()
			s, err := f.worker.Connect(ctx)
			require.NoError(t, err)
			var sent atomic.Int64
			ended := make(chan error, 1)
			go func() {
				frame := &workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: &workerv1.Register{Worker: strings.Repeat("x", size), Offers: []*workerv1.Offer{{Kind: "tool", Name: "a"}}}}}
				for sent.Load() < many && err == nil {
					if err = s.Send(frame); err == nil {
						sent.Add(1)
					}
				}
				ended <- err
			}()
			assert.Less(t, standstill(t, &sent), int64(many/10))
			cancel()
			assert.ErrorIs(t, waittest.For(t, ended, "the end of the caller that sends"), io.EOF)
			_, err = s.Recv()
			assert.Equal(t, codes.Canceled, rpcerr.Code(err), "%v", err)
		})
	})
}

func TestHeadersAreCheckedAndBounded(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", bound.RequestHeaderBytes)
	for name, c := range map[string]struct {
		key, value string
		refused    bool
	}{
		"a key with a space":         {"bad key", "x", true},
		"no key":                     {"", "x", true},
		"a value of other letters":   {"key", "é", true},
		"a value of two lines":       {"key", "a\nb", true},
		"too large":                  {"key", large, true},
		"many":                       {"key", strings.Repeat("x", 60_000), false},
		"bytes under a key for them": {"key-bin", "\x00\xff\n", false},
		"every letter there is":      {"a-z_0.9", " !\"~", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inEveryForm(t, func(t *testing.T, f *form) {
				f.list = func(ctx context.Context, _ *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
					assert.Equal(t, []string{c.value}, metadata.ValueFromIncomingContext(ctx, c.key))
					return &toolv1.ListToolsResponse{}, nil
				}
				f.execute = func(_ *toolv1.ExecuteToolsRequest, s toolv1.ToolService_ExecuteToolsServer) error {
					return s.SendHeader(metadata.MD{c.key: {c.value}})
				}
				_, err := f.tools.ListTools(metadata.AppendToOutgoingContext(t.Context(), c.key, c.value), listing())
				stream, openErr := f.tools.ExecuteTools(waittest.Context(t), executing())
				require.NoError(t, openErr)
				_, answerErr := stream.Recv()
				if c.refused {
					assert.Equal(t, codes.Internal, rpcerr.Code(err), "%v", err)
					assert.Equal(t, codes.Internal, rpcerr.Code(answerErr), "%v", answerErr)
					return
				}
				require.NoError(t, err)
				require.ErrorIs(t, answerErr, io.EOF)
				header, err := stream.Header()
				require.NoError(t, err)
				assert.Equal(t, []string{c.value}, header.Get(c.key))
			})
		})
	}
}

func TestHeadersThatAreTheTransportsAreNotPassedOn(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		f.list = func(ctx context.Context, _ *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
			for _, key := range []string{":path", "content-type", "user-agent", "te", "grpc-timeout", "grpc-status"} {
				assert.NotContains(t, metadata.ValueFromIncomingContext(ctx, key), "mine", key)
			}
			return &toolv1.ListToolsResponse{}, nil
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), ":path", "mine", "content-type", "mine", "user-agent", "mine", "te", "mine", "grpc-timeout", "mine", "grpc-status", "mine")
		_, err := f.tools.ListTools(ctx, listing())
		require.NoError(t, err)
	})
}

func TestLogAndMetricsTellTheSameOfACall(t *testing.T) {
	t.Parallel()
	inEveryForm(t, func(t *testing.T, f *form) {
		told := func(ctx context.Context, method string) {
			got, _ := grpc.Method(ctx)
			assert.Equal(t, method, got)
			from, ok := peer.FromContext(ctx)
			assert.True(t, ok && from.Addr.String() != "", "who calls has an address")
		}
		f.list = func(ctx context.Context, _ *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
			told(ctx, toolv1.ToolService_ListTools_FullMethodName)
			return nil, rpcerr.InvalidRequest("no")
		}
		f.execute = func(_ *toolv1.ExecuteToolsRequest, s toolv1.ToolService_ExecuteToolsServer) error {
			told(s.Context(), toolv1.ToolService_ExecuteTools_FullMethodName)
			return nil
		}
		ctx := metadata.AppendToOutgoingContext(waittest.Context(t), "x-request-id", "mine")
		_, err := f.tools.ListTools(ctx, listing())
		require.Error(t, err)
		stream, err := f.tools.ExecuteTools(ctx, executing())
		require.NoError(t, err)
		_, err = stream.Recv()
		require.ErrorIs(t, err, io.EOF)
		f.server.Drain(t.Context())

		var lines []map[string]any
		for decoder := json.NewDecoder(f.log); decoder.More(); {
			line := map[string]any{}
			require.NoError(t, decoder.Decode(&line))
			delete(line, "time")
			delete(line, "took")
			delete(line, "error")
			lines = append(lines, line)
		}
		assert.Equal(t, []map[string]any{
			{"level": "DEBUG", "msg": "call", "method": toolv1.ToolService_ListTools_FullMethodName, "code": "InvalidArgument", "request_id": "mine", "principal": "test"},
			{"level": "DEBUG", "msg": "call", "method": toolv1.ToolService_ExecuteTools_FullMethodName, "code": "OK", "request_id": "mine", "principal": "test"},
		}, lines)

		families, err := f.metrics.Gather()
		require.NoError(t, err)
		var counted []string
		for _, family := range families {
			for _, m := range family.GetMetric() {
				labels := ""
				for _, l := range m.GetLabel() {
					labels += " " + l.GetValue()
				}
				counted = append(counted, fmt.Sprintf("%s%s %d %v", family.GetName(), labels, m.GetHistogram().GetSampleCount(), m.GetGauge().GetValue()))
			}
		}
		assert.ElementsMatch(t, []string{
			"evalfleet_rpc_duration_seconds InvalidArgument " + toolv1.ToolService_ListTools_FullMethodName + " tests 1 0",
			"evalfleet_rpc_duration_seconds OK " + toolv1.ToolService_ExecuteTools_FullMethodName + " tests 1 0",
			"evalfleet_rpc_in_flight " + toolv1.ToolService_ListTools_FullMethodName + " tests 0 0",
			"evalfleet_rpc_in_flight " + toolv1.ToolService_ExecuteTools_FullMethodName + " tests 0 0",
		}, counted)
	})
}
