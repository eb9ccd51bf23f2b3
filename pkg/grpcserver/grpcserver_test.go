package grpcserver_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/auth/authtest"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// toolServer answers ListTools as configured.
type toolServer struct {
	toolv1.UnimplementedToolServiceServer
	list func(context.Context) error
}

func (s toolServer) ListTools(ctx context.Context, _ *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
	return &toolv1.ListToolsResponse{}, s.list(ctx)
}

func (s toolServer) ExecuteTools(*toolv1.ExecuteToolsRequest, toolv1.ToolService_ExecuteToolsServer) error {
	return errors.New("secret cause")
}

// serve returns a client of a server in memory whose log goes to log.
func serve(t *testing.T, token string, log io.Writer, list func(context.Context) error) (toolv1.ToolServiceClient, healthv1.HealthClient) {
	t.Helper()
	s, err := grpcserver.New(grpcserver.Options{
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Auth:   auth.NewTokens("", map[string]config.Secret{"admin": config.NewSecret("right")}),
	})
	require.NoError(t, err)
	toolv1.RegisterToolServiceServer(s, toolServer{list: list})
	l := inprocess.Listen()
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	s.SetReady(true)
	conn, err := grpcclient.Within(l, grpcclient.Options{Token: config.NewSecret(token)})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		s.Drain(context.Background())
		require.NoError(t, waittest.For(t, done, "the server to end"))
	})
	return toolv1.NewToolServiceClient(conn), healthv1.NewHealthClient(conn)
}

// A process may be stopped before the goroutine that serves has been scheduled.
func TestAServerThatWasStoppedBeforeItServedHasEndedWell(t *testing.T) {
	t.Parallel()
	s, err := grpcserver.New(grpcserver.Options{Logger: slog.New(slog.DiscardHandler), Auth: authtest.Allow{Name: "test"}})
	require.NoError(t, err)
	s.Drain(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, s.Serve(l))
	_, err = l.Accept()
	assert.ErrorIs(t, err, net.ErrClosed, "the listener is closed all the same")
}

func TestACallCarriesItsPrincipal(t *testing.T) {
	t.Parallel()
	var who string
	tools, health := serve(t, "right", io.Discard, func(ctx context.Context) error { who = auth.FromContext(ctx).Name; return nil })
	_, err := tools.ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: "projects/p"})
	require.NoError(t, err)
	assert.Equal(t, "admin", who)
	h, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	assert.Equal(t, healthv1.HealthCheckResponse_SERVING, h.GetStatus())
}

func TestAWrongTokenIsRefusedButHealthIsOpen(t *testing.T) {
	t.Parallel()
	tools, health := serve(t, "wrong", io.Discard, func(context.Context) error { t.Error("must not be called"); return nil })
	_, err := tools.ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: "projects/p"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_TOKEN_INVALID), "%v", err)
	_, err = health.Check(t.Context(), &healthv1.HealthCheckRequest{})
	assert.NoError(t, err)
}

func TestARequestThatBreaksItsSchemaNamesTheField(t *testing.T) {
	t.Parallel()
	tools, _ := serve(t, "right", io.Discard, func(context.Context) error { t.Error("must not be called"); return nil })
	_, err := tools.ListTools(t.Context(), &toolv1.ListToolsRequest{PageSize: -1})
	e, ok := rpcerr.As(err)
	require.True(t, ok)
	assert.Equal(t, codes.InvalidArgument, e.Code)
	paths := []string{}
	for _, f := range e.Fields {
		paths = append(paths, f.Path)
	}
	assert.Equal(t, []string{"parent", "page_size"}, paths)
}

func TestAPanicAndAForeignErrorTellOnlyTheLog(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	tools, _ := serve(t, "right", &log, func(context.Context) error { panic("kaboom") })
	_, err := tools.ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: "projects/p"})
	assert.Equal(t, codes.Internal, rpcerr.Code(err))
	assert.NotContains(t, err.Error(), "kaboom")

	stream, err := tools.ExecuteTools(waittest.Context(t), &toolv1.ExecuteToolsRequest{Parent: "projects/p", Calls: []*toolv1.ToolCall{{}}})
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, codes.Internal, rpcerr.Code(err))
	assert.NotContains(t, err.Error(), "secret cause")
	told, _ := rpcerr.As(err)
	require.NotEmpty(t, told.Metadata["requestId"])
	assert.Contains(t, err.Error(), told.Metadata["requestId"])
	assert.Regexp(t, "request_id="+told.Metadata["requestId"]+".*secret cause", log.String())
	assert.Contains(t, log.String(), "kaboom")
	assert.Contains(t, log.String(), "secret cause")
	assert.Contains(t, log.String(), "principal=admin")
}

func TestAMessageOverTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	tools, _ := serve(t, "right", io.Discard, func(context.Context) error { return nil })
	for _, size := range []int{bound.MessageBytes + 1, 3 * bound.MessageBytes} {
		_, err := tools.ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: strings.Repeat("x", size)})
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
		assert.ErrorContains(t, err, "4194304")
		stream, err := tools.ExecuteTools(waittest.Context(t), &toolv1.ExecuteToolsRequest{Parent: strings.Repeat("x", size)})
		require.NoError(t, err)
		_, err = stream.Recv()
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
	}
}

// A missing text, message, list or element is said in one form, whichever rule refuses it, by its whole path.
func TestAMissingFieldIsSaidInOneForm(t *testing.T) {
	t.Parallel()
	tools, _ := serve(t, "right", io.Discard, nil)
	stream, err := tools.ExecuteTools(waittest.Context(t), &toolv1.ExecuteToolsRequest{Tools: []*toolv1.ToolRef{{Name: "bash"}, {}}})
	require.NoError(t, err)
	_, err = stream.Recv()
	e, ok := rpcerr.As(err)
	require.True(t, ok, "%v", err)
	assert.ElementsMatch(t, []rpcerr.Field{{Path: "parent", Description: "is required"}, {Path: "tools[1].name", Description: "is required"}, {Path: "calls", Description: "is required"}}, e.Fields)
}
