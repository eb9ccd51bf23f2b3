package proxy_test

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
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/evalfleet/evalfleet/pkg/auth/authtest"
	"github.com/evalfleet/evalfleet/pkg/bound"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/grpcserver/grpcservertest"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/gateway/internal/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend has a method of each kind.
type backend struct {
	toolv1.UnimplementedToolServiceServer
	blobv1.UnimplementedBlobServiceServer
	workerv1.UnimplementedWorkerServiceServer
}

func (backend) ListTools(ctx context.Context, r *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
	_ = grpc.SetHeader(ctx, metadata.Pairs("head", "a"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("trail", "z"))
	if r.GetPageToken() != "" {
		return nil, rpcerr.ToolNotFound("x", nil)
	}
	return &toolv1.ListToolsResponse{NextPageToken: r.GetParent()}, nil
}

func (backend) ExecuteTools(_ *toolv1.ExecuteToolsRequest, s toolv1.ToolService_ExecuteToolsServer) error {
	for i := range int32(3) {
		if err := s.Send(&toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Started{Started: &toolv1.ToolStarted{Index: i}}}); err != nil {
			return err
		}
	}
	return rpcerr.InvalidRequest("that was all")
}

func (backend) UploadBlob(s blobv1.BlobService_UploadBlobServer) error {
	var size int64
	for {
		chunk, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&contentv1.BlobRef{Size: size})
		}
		if err != nil {
			return err
		}
		size += int64(len(chunk.GetChunk()))
	}
}

func (backend) Connect(s workerv1.WorkerService_ConnectServer) error {
	for {
		got, err := s.Recv()
		if err != nil {
			return nil //nolint:nilerr // the caller has no more
		}
		if err := s.Send(&workerv1.ConnectResponse{Frame: &workerv1.ConnectResponse_Registered{Registered: &workerv1.Registered{Worker: got.GetRegister().GetWorker()}}}); err != nil {
			return err
		}
	}
}

// front serves a proxy in front of an in-process backend, and returns a connection to the proxy.
func front(t *testing.T) grpc.ClientConnInterface {
	t.Helper()
	behind := grpcservertest.Serve(t, "test", func(r grpc.ServiceRegistrar) {
		toolv1.RegisterToolServiceServer(r, backend{})
		blobv1.RegisterBlobServiceServer(r, backend{})
		workerv1.RegisterWorkerServiceServer(r, backend{})
	})
	backends := proxy.Backends{}
	for _, desc := range []*grpc.ServiceDesc{&toolv1.ToolService_ServiceDesc, &blobv1.BlobService_ServiceDesc, &workerv1.WorkerService_ServiceDesc} {
		backends[desc.ServiceName] = behind
	}
	server, err := grpcserver.New(grpcserver.Options{
		Logger: slog.New(slog.DiscardHandler), Auth: authtest.Allow{Name: "test"}, Services: backends.Services(), Extra: backends.ServerOptions(),
	})
	require.NoError(t, err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpcclient.New(l.Addr().String(), grpcclient.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, conn.Close())
		server.Stop()
		assert.NoError(t, waittest.For(t, served, "the server to end"))
	})
	return conn
}

func TestCallsOfEachKindPass(t *testing.T) {
	t.Parallel()
	conn := front(t)
	tools := toolv1.NewToolServiceClient(conn)
	t.Run("one message each way", func(t *testing.T) {
		t.Parallel()
		for page, reason := range map[string]errorsv1.ErrorReason{"": errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED, "x": errorsv1.ErrorReason_ERROR_REASON_TOOL_NOT_FOUND} {
			var header, trailer metadata.MD
			answer, err := tools.ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: "projects/p", PageToken: page}, grpc.Header(&header), grpc.Trailer(&trailer))
			assert.Equal(t, reason, rpcerr.Reason(err))
			if err == nil {
				assert.Equal(t, "projects/p", answer.GetNextPageToken())
			}
			assert.Equal(t, []string{"a"}, header.Get("head"))
			assert.Equal(t, []string{"z"}, trailer.Get("trail"))
		}
	})
	t.Run("many back", func(t *testing.T) {
		t.Parallel()
		s, err := tools.ExecuteTools(waittest.Context(t), &toolv1.ExecuteToolsRequest{Parent: "projects/p", Calls: []*toolv1.ToolCall{{}}})
		require.NoError(t, err)
		for i := range int32(3) {
			event, err := s.Recv()
			require.NoError(t, err)
			assert.Equal(t, i, event.GetStarted().GetIndex())
		}
		_, err = s.Recv()
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
	})
	t.Run("many there", func(t *testing.T) {
		t.Parallel()
		s, err := blobv1.NewBlobServiceClient(conn).UploadBlob(waittest.Context(t))
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, s.Send(&blobv1.UploadBlobRequest{Chunk: make([]byte, 1<<20)}))
		}
		ref, err := s.CloseAndRecv()
		require.NoError(t, err)
		assert.EqualValues(t, 3<<20, ref.GetSize())
	})
	t.Run("many both ways", func(t *testing.T) {
		t.Parallel()
		s, err := workerv1.NewWorkerServiceClient(conn).Connect(waittest.Context(t))
		require.NoError(t, err)
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, s.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: &workerv1.Register{Worker: name, Offers: []*workerv1.Offer{{Kind: "tool", Name: "a"}}}}}))
			answer, err := s.Recv()
			require.NoError(t, err)
			assert.Equal(t, name, answer.GetRegistered().GetWorker(), "each is answered before the next is sent")
		}
		require.NoError(t, s.CloseSend())
		_, err = s.Recv()
		assert.ErrorIs(t, err, io.EOF)
	})
	t.Run("a request that is too large", func(t *testing.T) {
		t.Parallel()
		_, err := tools.ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: strings.Repeat("x", bound.MessageBytes+1)})
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
	})
}
