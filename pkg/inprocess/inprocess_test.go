package inprocess

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What callers and handlers see of calls is held by the tests of pkg/grpcserver, in this form and over the network.

func message(n int) mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(make([]byte, n))} }

func TestAWriterWaitsForItsReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, never := newPipe(), make(chan struct{})
		written := 0
		done := make(chan bool)
		go func() {
			ok := true
			for ; written < 8 && ok; written++ {
				ok = p.put(message(window/2), never)
			}
			done <- ok
		}()
		synctest.Wait()
		assert.Equal(t, 2, written, "a window of bytes, and no more")
		for range 8 {
			got, ended, ok := p.take(never)
			assert.Equal(t, window/2, got.Len())
			assert.False(t, ended)
			assert.True(t, ok)
		}
		assert.True(t, <-done)
		p.end()
		_, ended, _ := p.take(never)
		assert.True(t, ended)
	})
}

func TestAWriterIsHeldNoLongerThanTheCall(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *pipe, over chan struct{}){
		"its side is over": func(_ *pipe, over chan struct{}) { close(over) },
		"the pipe ends":    func(p *pipe, _ chan struct{}) { p.end() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, over := newPipe(), make(chan struct{})
				require.True(t, p.put(message(window), over))
				done := make(chan bool)
				go func() { done <- p.put(message(1), over) }()
				synctest.Wait()
				end(&p, over)
				assert.False(t, <-done)
			})
		})
	}
}

// health answers every check.
type health struct {
	healthv1.UnimplementedHealthServer
}

func (health) Check(context.Context, *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}, nil
}

// patient answers no check before its caller leaves.
type patient struct {
	healthv1.UnimplementedHealthServer

	begun chan struct{}
}

func (p patient) Check(ctx context.Context, _ *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	close(p.begun)
	<-ctx.Done()
	return nil, ctx.Err()
}

func newServer(workers int, service healthv1.HealthServer) *Server {
	s := NewServer(Options{
		Unary: func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			return handle(ctx, request)
		},
		Stream: func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return handle(srv, stream)
		},
		ReceiveBytes: 1 << 20, SendBytes: 1 << 20, Workers: workers,
	})
	healthv1.RegisterHealthServer(s, service)
	return s
}

func TestACallWaitsForAServerAndForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := Listen()
		conn := l.Dial(1 << 20)
		client := healthv1.NewHealthClient(conn)
		for range 2 {
			answered := make(chan error, 1)
			go func() {
				_, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{})
				answered <- err
			}()
			synctest.Wait()
			require.Empty(t, answered)
			s := newServer(2, health{})
			s.Serve(l)
			require.NoError(t, <-answered)
			s.Close()
			s.Wait()
		}
		within, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := client.Check(within, &healthv1.HealthCheckRequest{})
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		refused := make(chan error, 1)
		go func() {
			_, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{})
			refused <- err
		}()
		synctest.Wait()
		require.NoError(t, conn.Close())
		assert.Equal(t, codes.Canceled, status.Code(<-refused))
	})
}

// A server that goes may still have calls of a connection when the next one serves its listener.
func TestCloseEndsTheCallsAtEveryServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := Listen()
		conn := l.Dial(1 << 20)
		begun := make(chan struct{})
		first, second := newServer(0, patient{begun: begun}), newServer(0, health{})
		first.Serve(l)
		answered := make(chan error, 1)
		go func() {
			_, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
			answered <- err
		}()
		<-begun
		first.Close()
		second.Serve(l)
		require.NoError(t, conn.Close())
		assert.Equal(t, codes.Canceled, status.Code(<-answered))
		first.Wait()
		_, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
		assert.Equal(t, codes.Canceled, status.Code(err), "nor does one begin")
		second.Close()
		second.Wait()
	})
}

func TestAnOptionThatIsNotKnownIsRefused(t *testing.T) {
	t.Parallel()
	client := healthv1.NewHealthClient(Listen().Dial(1 << 20))
	_, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{}, grpc.UseCompressor("gzip"))
	assert.Equal(t, codes.Internal, status.Code(err))
	assert.ErrorContains(t, err, "CompressorCallOption")
}

func TestAListenerAcceptsNothingAndCloses(t *testing.T) {
	t.Parallel()
	l := Listen()
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err := l.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
}
