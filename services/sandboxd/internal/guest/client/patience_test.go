package client_test

import (
	"context"
	"errors"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/bound"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/link"
)

// stuck is a guest that at most says hello, and nothing else.
type stuck struct {
	guestv1.UnimplementedGuestServiceServer

	greets bool
}

func (s *stuck) Hello(ctx context.Context, _ *guestv1.HelloRequest) (*guestv1.HelloResponse, error) {
	if s.greets {
		return &guestv1.HelloResponse{BootId: "boot"}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *stuck) Run(ctx context.Context, _ *guestv1.RunRequest) (*guestv1.RunResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *stuck) Kill(ctx context.Context, _ *guestv1.KillRequest) (*guestv1.KillResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *stuck) RemoveFile(ctx context.Context, _ *guestv1.RemoveFileRequest) (*guestv1.RemoveFileResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *stuck) Stream(_ *guestv1.StreamRequest, stream grpc.ServerStreamingServer[sandboxv1.StreamExecResponse]) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

func (s *stuck) WriteFile(stream grpc.ClientStreamingServer[guestv1.WriteFileRequest, guestv1.WriteFileResponse]) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

// connected returns a client of a guest, and a function that ends both.
func connected(guest guestv1.GuestServiceServer) (*client.Client, func()) {
	conns := make(chan net.Conn)
	server := grpc.NewServer()
	guestv1.RegisterGuestServiceServer(server, guest)
	listener := link.NewListener(link.Config{Dial: func() (net.Conn, error) {
		theirs, ours := net.Pipe()
		select {
		case conns <- ours:
			return theirs, nil
		case <-time.After(time.Second):
			return nil, errors.New("nobody listens")
		}
	}})
	go func() { _ = server.Serve(listener) }()
	c := client.New(client.Config{Sandbox: "projects/p/sandboxes/s", Connect: func(ctx context.Context) (net.Conn, error) {
		select {
		case conn := <-conns:
			return conn, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	return c, func() { c.Close(); server.Stop() }
}

func TestNoCallWaitsForAGuestForEver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		call  func(ctx context.Context, api guestv1.GuestServiceClient) error
		limit time.Duration
	}{
		"a command with a timeout": {func(ctx context.Context, api guestv1.GuestServiceClient) error {
			_, err := api.Run(ctx, &guestv1.RunRequest{Spec: &sandboxv1.ExecSpec{Timeout: durationpb.New(time.Hour)}})
			return err
		}, time.Hour + bound.GuestAnswer},
		"a kill": {func(ctx context.Context, api guestv1.GuestServiceClient) error {
			_, err := api.Kill(ctx, &guestv1.KillRequest{})
			return err
		}, bound.GuestAnswer},
		"a removal": {func(ctx context.Context, api guestv1.GuestServiceClient) error {
			_, err := api.RemoveFile(ctx, &guestv1.RemoveFileRequest{})
			return err
		}, bound.GuestWork},
		"a stream": {func(ctx context.Context, api guestv1.GuestServiceClient) error {
			stream, err := api.Stream(ctx, &guestv1.StreamRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}, bound.GuestAnswer},
		"an upload": {func(ctx context.Context, api guestv1.GuestServiceClient) error {
			_, err := client.Upload(ctx, api, &guestv1.WriteFileRequest{}, func() ([]byte, error) { return make([]byte, client.Chunk), nil })
			return err
		}, bound.GuestAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, end := connected(&stuck{greets: true})
				defer end()
				_, err := c.Hello(t.Context())
				require.NoError(t, err)
				begin := time.Now()
				err = c.Once(t.Context(), func(api guestv1.GuestServiceClient) error { return tt.call(t.Context(), api) })
				assert.Equal(t, codes.DeadlineExceeded, rpcerr.Code(err), "%v", err)
				require.ErrorContains(t, err, "projects/p/sandboxes/s")
				assert.Equal(t, tt.limit, time.Since(begin))
			})
		})
	}
}

func TestAGuestThatDoesNotGreetIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, end := connected(&stuck{})
		defer end()
		begin := time.Now()
		_, err := c.Hello(t.Context())
		assert.Equal(t, codes.DeadlineExceeded, rpcerr.Code(err), "%v", err)
		assert.Equal(t, bound.GuestAnswer, time.Since(begin))
	})
}

func TestACommandWithoutATimeoutIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]*durationpb.Duration{"none": nil, "longer than Go can say": {Seconds: 315_576_000_000}, "the longest": durationpb.New(math.MaxInt64)} {
		synctest.Test(t, func(t *testing.T) {
			c, end := connected(&stuck{greets: true})
			defer end()
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			begin := time.Now()
			err := c.Once(ctx, func(api guestv1.GuestServiceClient) error {
				_, err := api.Run(ctx, &guestv1.RunRequest{Spec: &sandboxv1.ExecSpec{Timeout: timeout}})
				return err
			})
			require.Error(t, err, name)
			assert.Equal(t, 24*time.Hour, time.Since(begin), name)
		})
	}
}
