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

func TestMessagesWithoutBytesFillTheWindowToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, done := newPipe(), make(chan struct{})
		written := make(chan int, 1)
		go func() {
			n := 0
			for n < window && p.put(message(0), done) {
				n++
			}
			written <- n
		}()
		synctest.Wait()
		require.Empty(t, written, "the writer waits")
		close(done)
		assert.Equal(t, window/overhead, <-written)
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

// health answers checks as a test tells it.
type health struct {
	healthv1.UnimplementedHealthServer
	check func(context.Context)
}

func (h health) Check(ctx context.Context, _ *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	h.check(ctx)
	return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}, nil
}

func newServer(workers int, check func(context.Context)) *Server {
	s := NewServer(Options{
		Unary: func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			return handle(ctx, request)
		},
		Stream: func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return handle(srv, stream)
		},
		ReceiveBytes: 1 << 20, SendBytes: 1 << 20, Workers: workers,
	})
	healthv1.RegisterHealthServer(s, health{check: check})
	return s
}

func TestACallWaitsForAServerAndForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := Listen()
		conn := l.Dial(1 << 20)
		for range 2 {
			answered := called(t, conn)
			require.Empty(t, answered)
			s := newServer(2, func(context.Context) {})
			s.Serve(l)
			require.NoError(t, <-answered)
			s.Close()
			s.Wait()
		}
		within, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := healthv1.NewHealthClient(conn).Check(within, &healthv1.HealthCheckRequest{})
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		refused := called(t, conn)
		require.NoError(t, conn.Close())
		assert.Equal(t, codes.Canceled, status.Code(<-refused))
	})
}

// called makes a call beside the test, and returns how it ends when it does.
func called(t *testing.T, conn *Conn) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
		ended <- err
	}()
	synctest.Wait()
	return ended
}

func TestACallThatNobodyWillServeFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := Listen()
		conn := l.Dial(1 << 20)
		waiting := called(t, conn)
		require.Empty(t, waiting)
		require.NoError(t, l.Close())
		assert.Equal(t, codes.Unavailable, status.Code(<-waiting))
		assert.Equal(t, codes.Unavailable, status.Code(<-called(t, conn)))
	})
}

func TestAConnectionThatIsClosedEndsItsCallsAtEveryServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := Listen()
		conn, other := l.Dial(1<<20), l.Dial(1<<20)
		var servers []*Server
		var calls []<-chan error
		for range 2 {
			s := newServer(2, func(ctx context.Context) { <-ctx.Done() })
			s.Serve(l)
			servers, calls = append(servers, s), append(calls, called(t, conn), called(t, other))
			s.Close() // which lets them end
		}
		require.NoError(t, conn.Close())
		synctest.Wait()
		for i, call := range calls {
			if i%2 == 0 {
				assert.Equal(t, codes.Canceled, status.Code(<-call))
			} else {
				assert.Empty(t, call, "another connection's goes on")
			}
		}
		require.NoError(t, other.Close())
		for _, s := range servers {
			s.Wait()
		}
	})
}

func TestAServerThatWasStoppedWaitsForHandlersThatDoNotHeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, end := Listen(), make(chan struct{})
		s := newServer(2, func(context.Context) { <-end })
		s.Serve(l)
		call := called(t, l.Dial(1<<20))
		s.Stop()
		assert.Equal(t, codes.Unavailable, status.Code(<-call), "the caller does not wait")
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			s.Wait()
		}()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("nobody waits for the handler")
		default:
		}
		close(end)
		<-waited
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
