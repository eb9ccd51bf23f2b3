package connmux_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/auth/authtest"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/connlimit"
	"github.com/evalfleet/evalfleet/pkg/connmux"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		serveAttacked()
		return
	}
	goleak.VerifyTestMain(m)
}

// pipes is a listener whose connections a test makes.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func listenPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, errBroken
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

var errBroken = fmt.Errorf("the network is gone: %w", net.ErrClosed)

// dial connects, and returns the client's end.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// accepted is the first connection of one of two listeners, by its name.
type accepted struct {
	by   string
	conn net.Conn
}

func acceptBoth(http2, http1 net.Listener) <-chan accepted {
	all := make(chan accepted)
	for by, l := range map[string]net.Listener{"http2": http2, "http1": http1} {
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				all <- accepted{by, conn}
			}
		}()
	}
	return all
}

// A connection is recognized by its first bytes, however they are split, and its server reads all of them.
func TestAConnectionGoesToWhoSpeaksItsProtocol(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		preface: "http2", "GET / HTTP/1.1\r\n": "http1", "PRI * HTTP/1.1\r\nHost: x\r\n\r\n": "http1", "POST /v1/x HTTP/1.1\r\n": "http1", "P": "", "PRI * HTTP/2.0\r": "", "\x16\x03\x01": "http1",
	} {
		for name, step := range map[string]int{"at once": len(sent), "byte by byte": 1} {
			synctest.Test(t, func(t *testing.T) {
				l := listenPipes()
				http2, http1 := connmux.Split(l)
				defer l.Close()
				all := acceptBoth(http2, http1)
				client := l.dial()
				go func() {
					for at := 0; at < len(sent); at += step {
						_, _ = io.WriteString(client, sent[at:min(at+step, len(sent))])
					}
				}()
				select {
				case got := <-all:
					require.Equal(t, want, got.by, "%q %s", sent, name)
					whole := make([]byte, len(sent))
					_, err := io.ReadFull(got.conn, whole)
					require.NoError(t, err)
					assert.Equal(t, sent, string(whole))
					assert.Equal(t, "pipes", http1.Addr().String())
				case <-time.After(time.Minute):
					assert.Empty(t, want, "%q %s: nobody got it", sent, name)
					_, err := client.Read(make([]byte, 1))
					require.ErrorIs(t, err, io.EOF, "whoever does not say what they speak is cut off")
				}
				_ = client.Close()
			})
		}
	}
}

// A silent client does not block others.
func TestASilentConnectionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := listenPipes()
		defer l.Close()
		all := acceptBoth(connmux.Split(l))
		silent, talks := l.dial(), l.dial()
		go func() { _, _ = io.WriteString(talks, preface) }()
		assert.Equal(t, "http2", (<-all).by)
		_, err := silent.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_ = talks.Close()
	})
}

// When the listener is closed, both listeners return the reason; a connection that is not accepted by then is closed.
func TestBothListenersEndWithTheirAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := listenPipes()
		http2, http1 := connmux.Split(l)
		require.NoError(t, http1.Close())
		_, err := http1.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		client := l.dial()
		go func() { _, _ = io.WriteString(client, "GET / HTTP/1.1\r\n\r\n") }()
		synctest.Wait()
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "nobody takes HTTP any more")
		require.NoError(t, l.Close())
		_, err = http2.Accept()
		require.ErrorIs(t, err, errBroken)
	})
}

// served is a server at an address of this machine, and what its Serve returns.
type served struct {
	*connmux.Server
	rpcs    *grpcserver.Server
	address string
	ended   chan error
}

func serve(t *testing.T, handler http.HandlerFunc) *served {
	t.Helper()
	rpcs, err := grpcserver.New(grpcserver.Options{Logger: slog.New(slog.DiscardHandler), Auth: authtest.Allow{Name: "tester"}})
	require.NoError(t, err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &served{
		Server: connmux.New(connmux.Config{GRPC: rpcs, Handler: handler, Connections: 100, Logger: slog.New(slog.DiscardHandler)}),
		rpcs:   rpcs, address: l.Addr().String(), ended: make(chan error, 1),
	}
	go func() { s.ended <- s.Serve(l) }()
	return s
}

func (s *served) get(ctx context.Context) (string, error) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

func TestCallsAndRequestsShareAnAddress(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	said, err := s.get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "hello", said)
	conn, err := grpcclient.New(s.address, grpcclient.Options{})
	require.NoError(t, err)
	health, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	assert.Equal(t, healthv1.HealthCheckResponse_SERVING, health.GetStatus(), "it says that it is ready")
	require.NoError(t, conn.Close())
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, waittest.For(t, s.ended, "the server to end"))
	_, err = s.get(t.Context())
	require.Error(t, err)
}

// A server that is stopped before it serves accepts no calls.
func TestStopMayComeFirst(t *testing.T) {
	t.Parallel()
	rpcs, err := grpcserver.New(grpcserver.Options{Logger: slog.New(slog.DiscardHandler), Auth: authtest.Allow{Name: "tester"}})
	require.NoError(t, err)
	s := connmux.New(connmux.Config{GRPC: rpcs, Handler: http.NotFoundHandler(), Connections: 100, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, s.Stop(t.Context()))
	l := listenPipes()
	require.NoError(t, s.Serve(l))
	_, err = l.Accept()
	require.ErrorIs(t, err, errBroken, "the address is free")
}

// Requests in flight end by themselves within the given time, and are cut off after it.
func TestStopLetsRequestsEndWithinTheTime(t *testing.T) {
	t.Parallel()
	for _, patient := range []bool{true, false} {
		began, let := make(chan struct{}), make(chan struct{})
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			close(began)
			select {
			case <-let:
				_, _ = io.WriteString(w, "done")
			case <-r.Context().Done():
			}
		})
		type answer struct {
			said string
			err  error
		}
		got := make(chan answer, 1)
		go func() {
			said, err := s.get(t.Context())
			got <- answer{said, err}
		}()
		waittest.For(t, began, "the request at its handler")
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		if patient {
			go func() { stopped <- s.Stop(ctx) }()
			close(let)
			assert.Equal(t, answer{said: "done"}, waittest.For(t, got, "the answer of a request that ends by itself"))
		} else {
			cancel()
			go func() { stopped <- s.Stop(ctx) }()
			require.Error(t, waittest.For(t, got, "the end of a request that is cut off").err)
		}
		if err := waittest.For(t, stopped, "the stop to return"); patient {
			require.NoError(t, err)
		}
		require.NoError(t, waittest.For(t, s.ended, "the server to end"))
		cancel()
	}
}

// A client that has shown no token has so much time to take an answer, and a refused one has no second request. One
// that has shown a token may take any time, as far as the server is concerned.
func TestAnAnswerThatAStrangerDoesNotReadEnds(t *testing.T) {
	t.Parallel()
	const late = 2 * bound.StrangerPause
	for name, tt := range map[string]struct {
		request string
		status  int // of an answer that is read late; 0 is none
	}{
		"refused":        {request: "GET /guarded HTTP/1.1\r\nHost: x\r\n\r\n"},
		"open to all":    {request: "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		"a known caller": {"GET /guarded HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer right\r\n\r\n", http.StatusOK},
	} {
		synctest.Test(t, func(t *testing.T) {
			tokens := auth.NewTokens("", map[string]config.Secret{"admin": config.NewSecret("right")})
			mux := http.NewServeMux()
			hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
			mux.Handle("/", hello)
			mux.Handle("/guarded", auth.Guard(tokens, hello))
			rpcs, err := grpcserver.New(grpcserver.Options{Logger: slog.New(slog.DiscardHandler), Auth: tokens})
			require.NoError(t, err)
			s := connmux.New(connmux.Config{GRPC: rpcs, Handler: mux, Connections: 100, Logger: slog.New(slog.DiscardHandler)})
			l := listenPipes()
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(l) }()

			client := l.dial() // Nothing is buffered between its ends.
			_, err = io.WriteString(client, tt.request)
			require.NoError(t, err)
			time.Sleep(late)
			answer, err := http.ReadResponse(bufio.NewReader(client), nil)
			if tt.status == 0 {
				require.Error(t, err, "%s: the server still holds an answer that is not read", name)
			} else {
				require.NoError(t, err, name)
				assert.Equal(t, tt.status, answer.StatusCode, name)
				require.NoError(t, answer.Body.Close())
			}
			_ = client.Close()

			client = l.dial()
			_, err = io.WriteString(client, tt.request)
			require.NoError(t, err)
			answer, err = http.ReadResponse(bufio.NewReader(client), nil)
			require.NoError(t, err)
			assert.Equal(t, name == "refused", answer.Close, "%s: the connection ends", name)
			require.NoError(t, answer.Body.Close())
			_ = client.Close()
			require.NoError(t, s.Stop(t.Context()))
			require.NoError(t, <-ended)
		})
	}
}

// More callers than there are turns connect before any of them sends, and each is answered.
func TestManyCallersConnectBeforeTheySend(t *testing.T) {
	t.Parallel()
	const callers = 2 * bound.Strangers
	rpcs, err := grpcserver.New(grpcserver.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	tokens := auth.NewTokens("", map[string]config.Secret{"admin": config.NewSecret("right")})
	s := connmux.New(connmux.Config{GRPC: rpcs, Handler: auth.Guard(tokens, http.NotFoundHandler()), Logger: slog.New(slog.DiscardHandler)})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var served sync.WaitGroup
	served.Go(func() { assert.NoError(t, s.Serve(l)) })
	defer served.Wait()
	defer func() { assert.NoError(t, s.Stop(t.Context())) }()
	conns := make([]net.Conn, callers)
	for i := range conns {
		conns[i], err = net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer conns[i].Close()
	}
	var answers sync.WaitGroup
	for _, c := range conns {
		answers.Go(func() {
			_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n\r\n")
			assert.NoError(t, err)
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if assert.NoError(t, err) {
				assert.Equal(t, http.StatusNotFound, answer.StatusCode)
				assert.NoError(t, answer.Body.Close())
			}
		})
	}
	answers.Wait()
}

// Connections of callers that have no request make room when there are as many as there may be, and none that has one.
func TestIdleConnectionsOfCallersMakeRoom(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		connlimit.MarkCallerAuthenticated(r.Context())
		if r.URL.Path == "/slow" {
			close(begun)
			waittest.Hold(t, release)
		}
	})
	ask := func(path string) error {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	slow := make(chan error, 1)
	go func() { slow <- ask("/slow") }()
	waittest.For(t, begun, "the request that is under way")
	watching, err := grpcclient.New(s.address, grpcclient.Options{Token: config.NewSecret("right")})
	require.NoError(t, err)
	watch, err := healthv1.NewHealthClient(watching).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	for range 98 {
		require.NoError(t, ask("/"))
	}
	for range 3 {
		require.Eventually(t, func() bool { return ask("/") == nil }, waittest.Bound, 50*time.Millisecond, "the first of them makes room once it is idle for long")
	}
	rpcs, err := grpcclient.New(s.address, grpcclient.Options{Token: config.NewSecret("right")})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := healthv1.NewHealthClient(rpcs).Check(waittest.Context(t), &healthv1.HealthCheckRequest{})
		return err == nil
	}, waittest.Bound, 50*time.Millisecond, "and for a connection of gRPC")
	close(release)
	require.NoError(t, waittest.For(t, slow, "the answer to the request"))
	s.rpcs.SetReady(false)
	health, err := watch.Recv()
	require.NoError(t, err)
	assert.Equal(t, healthv1.HealthCheckResponse_NOT_SERVING, health.GetStatus())
	require.NoError(t, watching.Close())
	require.NoError(t, rpcs.Close())
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, waittest.For(t, s.ended, "the server to end"))
}
