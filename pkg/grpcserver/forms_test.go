package grpcserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/evalfleet/evalfleet/pkg/auth/authtest"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// service answers as a test tells it.
type service struct {
	toolv1.UnimplementedToolServiceServer
	workerv1.UnimplementedWorkerServiceServer
	list    func(context.Context, *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error)
	execute func(*toolv1.ExecuteToolsRequest, toolv1.ToolService_ExecuteToolsServer) error
	connect func(workerv1.WorkerService_ConnectServer) error
}

func (s *service) ListTools(ctx context.Context, r *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
	return s.list(ctx, r)
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
	server *grpcserver.Server
	conn   grpcclient.Conn
	tools  toolv1.ToolServiceClient
	worker workerv1.WorkerServiceClient
	health healthv1.HealthClient

	// What the server has told of its calls; the log is read when the server has ended.
	log     *bytes.Buffer
	metrics prometheus.Gatherer
}

// forms are the ways from a client to a server.
var forms = map[string]struct {
	listen func(testing.TB) net.Listener
	dial   func(net.Listener) (grpcclient.Conn, error)
}{
	"network": {
		listen: func(t testing.TB) net.Listener {
			t.Helper()
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			return l
		},
		dial: func(l net.Listener) (grpcclient.Conn, error) {
			return grpcclient.New(l.Addr().String(), grpcclient.Options{})
		},
	},
	"within": {
		listen: func(testing.TB) net.Listener { return inprocess.Listen() },
		dial: func(l net.Listener) (grpcclient.Conn, error) {
			return grpcclient.Within(l.(*inprocess.Listener), grpcclient.Options{}), nil
		},
	},
}

// serveForm serves until the test ends.
func serveForm(t testing.TB, name string, level slog.Level) *form {
	t.Helper()
	f := &form{service: &service{}, log: &bytes.Buffer{}}
	registry := prometheus.NewRegistry()
	f.metrics = registry
	server, err := grpcserver.New(grpcserver.Options{
		Logger:  slog.New(slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: level})),
		Auth:    authtest.Allow{Name: "test"},
		Metrics: telemetry.NewCallMetrics(registry),
	})
	require.NoError(t, err)
	f.server = server
	toolv1.RegisterToolServiceServer(server, f.service)
	workerv1.RegisterWorkerServiceServer(server, f.service)
	server.SetReady(true)
	l := forms[name].listen(t)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	f.conn, err = forms[name].dial(l)
	require.NoError(t, err)
	f.tools, f.worker, f.health = toolv1.NewToolServiceClient(f.conn), workerv1.NewWorkerServiceClient(f.conn), healthv1.NewHealthClient(f.conn)
	t.Cleanup(func() {
		assert.NoError(t, f.conn.Close())
		server.Stop()
		assert.NoError(t, <-served)
	})
	return f
}

// inEveryForm holds a promise over the network and within the process: a caller cannot tell one from the other.
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
			return nil, rpcerr.WorkerAway("tool", "x", time.Second, "wait for it")
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
		ctx, cancel := context.WithCancelCause(t.Context())
		stream, err := f.tools.ExecuteTools(ctx, executing())
		require.NoError(t, err)
		<-begun
		cancel(errors.New("the caller's own"))
		assert.Equal(t, context.Canceled, <-ended)
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
			<-end
			return &toolv1.ListToolsResponse{}, nil
		}
		for timeout := 50 * time.Millisecond; len(begun) == 0; timeout *= 2 { // a busy machine may need longer to begin
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			_, err := f.tools.ListTools(ctx, listing())
			cancel()
			require.Equal(t, codes.DeadlineExceeded, rpcerr.Code(err))
		}
		assert.True(t, <-begun)
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
		s, err := f.worker.Connect(t.Context())
		require.NoError(t, err)
		names := strings.Split("abcdefghijklmnopqrstuvwxyz", "")
		for _, name := range names {
			require.NoError(t, s.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: &workerv1.Register{Worker: name}}}))
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
		s, err := f.worker.Connect(t.Context())
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
			return &toolv1.ListToolsResponse{NextPageToken: strings.Repeat("x", grpcserver.MaxMessageBytes)}, nil
		}
		f.execute = func(_ *toolv1.ExecuteToolsRequest, s toolv1.ToolService_ExecuteToolsServer) error {
			return s.Send(&toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Started{Started: &toolv1.ToolStarted{CallId: strings.Repeat("x", grpcserver.MaxMessageBytes)}}})
		}
		_, err := f.tools.ListTools(t.Context(), listing())
		assert.Equal(t, codes.ResourceExhausted, rpcerr.Code(err), "an answer: %v", err)
		stream, err := f.tools.ExecuteTools(t.Context(), executing())
		require.NoError(t, err)
		_, err = stream.Recv()
		assert.Equal(t, codes.ResourceExhausted, rpcerr.Code(err), "an event: %v", err)
		_, err = f.tools.ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: strings.Repeat("x", 4*grpcserver.MaxMessageBytes)})
		assert.Equal(t, codes.ResourceExhausted, rpcerr.Code(err), "a request: %v", err)
	})
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
		for _, method := range []string{"/evalfleet.tool.v1.ToolService/Nothing", "/nobody.v1.Nothing/ListTools", "/nonsense"} {
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
			<-begun
			assert.NoError(t, f.conn.Close())
		}()
		_, err := f.tools.ListTools(t.Context(), listing())
		assert.Equal(t, codes.Canceled, rpcerr.Code(err), "%v", err)
		<-ended
		_, err = f.tools.ListTools(t.Context(), listing())
		assert.Equal(t, codes.Canceled, rpcerr.Code(err), "%v", err)
		f.conn = closed{}
	})
}

// closed is a connection that a test has closed.
type closed struct{ grpcclient.Conn }

func (closed) Close() error { return nil }

func TestADrainWaitsAndAStopCuts(t *testing.T) {
	t.Parallel()
	t.Run("drain", func(t *testing.T) {
		t.Parallel()
		inEveryForm(t, func(t *testing.T, f *form) {
			begun, end := make(chan struct{}), make(chan struct{})
			f.list = func(context.Context, *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
				close(begun)
				<-end
				return &toolv1.ListToolsResponse{NextPageToken: "done"}, nil
			}
			answered := make(chan *toolv1.ListToolsResponse, 1)
			go func() {
				answer, err := f.tools.ListTools(t.Context(), listing())
				assert.NoError(t, err)
				answered <- answer
			}()
			<-begun
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				f.server.Drain(context.Background())
			}()
			refused, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			assert.Eventually(t, func() bool {
				_, err := f.worker.Connect(refused)
				return err != nil || refused.Err() != nil
			}, time.Minute, 10*time.Millisecond)
			select {
			case <-drained:
				t.Error("drained with a call under way")
			default:
			}
			close(end)
			assert.Equal(t, "done", (<-answered).GetNextPageToken())
			<-drained
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
			<-begun
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				f.server.Drain(context.Background())
			}()
			refused, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, _ = f.worker.Connect(refused) // which waits until the drain has begun, in most runs
			require.NoError(t, f.conn.Close())
			assert.Error(t, <-answered)
			<-drained
			f.conn = closed{}
		})
	})
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		inEveryForm(t, func(t *testing.T, f *form) {
			begun, ended := make(chan struct{}), make(chan struct{})
			f.execute = func(_ *toolv1.ExecuteToolsRequest, s toolv1.ToolService_ExecuteToolsServer) error {
				close(begun)
				<-s.Context().Done()
				close(ended)
				return nil
			}
			stream, err := f.tools.ExecuteTools(t.Context(), executing())
			require.NoError(t, err)
			<-begun
			over, cancel := context.WithCancel(t.Context())
			cancel()
			f.server.Drain(over)
			_, err = stream.Recv()
			assert.Equal(t, codes.Unavailable, rpcerr.Code(err), "%v", err)
			<-ended
		})
	})
}
