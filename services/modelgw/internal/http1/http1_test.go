package http1_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/http1"
)

// elsewhere fails requests that are not plain, with their URL.
type elsewhere struct{}

func (elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("elsewhere: %s", r.URL)
}

// newTransport returns a transport that makes plain requests only.
func newTransport(t testing.TB) *http1.Transport {
	transport := &http1.Transport{Dial: (&net.Dialer{}).DialContext, Other: elsewhere{}, IdlePerHost: 100, IdleTimeout: time.Minute}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// listen serves each connection to an address with serve, and returns the address as a URL.
func listen(t testing.TB, serve func(net.Conn, *bufio.Reader)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				serve(c, bufio.NewReader(c))
			})
		}
	})
	return "http://" + l.Addr().String()
}

// request reads a request whole.
func request(from *bufio.Reader) (*http.Request, string, error) {
	r, err := http.ReadRequest(from)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(r.Body)
	return r, string(body), err
}

// post makes a request with a body.
func post(ctx context.Context, rt http.RoundTripper, address, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return rt.RoundTrip(r)
}

// outcome is what a client sees of an answer.
type outcome struct {
	Status           string
	Length           int64
	Header, Trailer  http.Header
	Body             string
	NoAnswer, Broken bool
}

func ask(t testing.TB, rt http.RoundTripper, address string) outcome {
	answer, err := post(waittest.Context(t), rt, address, "{}")
	if err != nil {
		return outcome{NoAnswer: true}
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return outcome{Status: answer.Status, Length: answer.ContentLength, Header: answer.Header, Trailer: answer.Trailer, Body: string(body), Broken: err != nil}
}

// Whatever a server answers is read as net/http reads it, and its connection serves another request where that is safe.
func TestAnswersAreReadAsByNetHTTP(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct {
		answer string
		closes bool // the server, after the answer
		reused bool
	}{
		"of a length":              {ok + "Content-Length: 2\r\n\r\nhi", false, true},
		"in chunks":                {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", false, true},
		"with trailers":            {ok + "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n\r\n", false, true},
		"to the end":               {ok + "\r\nhi", true, false},
		"of an old server":         {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", false, false},
		"of an old one that stays": {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi", false, true},
		"without content":          {"HTTP/1.1 204 No Content\r\n\r\n", false, true},
		"empty":                    {ok + "Content-Length: 0\r\n\r\n", false, true},
		"the last":                 {ok + "Connection: close\r\nContent-Length: 2\r\n\r\nhi", false, false},
		"after hints":              {"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n", false, true},
		"refused":                  {"HTTP/1.1 429 Slow\r\nRetry-After: 2\r\nContent-Length: 2\r\n\r\nno", false, true},
		"two at once":              {ok + "Content-Length: 2\r\n\r\nhi" + ok + "Content-Length: 4\r\n\r\nevil", false, false},
		"none":                     {"", true, false},
		"no HTTP":                  {"SSH-2.0-OpenSSH\r\n", true, false},
		"cut in its status":        {"HTTP/1.1 20", true, false},
		"cut in its head":          {ok + "Content-Le", true, false},
		"cut in its body":          {ok + "Content-Length: 5\r\n\r\nhi", true, false},
		"cut in a chunk":           {ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhi", true, false},
		"cut before the last":      {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", true, false},
		"with no size of a chunk":  {ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\nhi\r\n0\r\n\r\n", true, false},
		"with two lengths":         {ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", true, false},
		"with a length and chunks": {ok + "Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", false, true},
		"of a negative length":     {ok + "Content-Length: -1\r\n\r\nhi", true, false},
		"with a line of no header": {ok + "no header\r\nContent-Length: 2\r\n\r\nhi", true, false},
		"with a folded header":     {ok + "X: a\r\n b\r\nContent-Length: 2\r\n\r\nhi", false, true},
		"with bare line ends":      {"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", false, true},
		"with an odd status":       {"HTTP/1.1 2000 OK\r\n\r\n", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connections atomic.Int64
			address := listen(t, func(conn net.Conn, from *bufio.Reader) {
				connections.Add(1)
				for {
					_, _, err := request(from)
					if err != nil {
						return
					}
					if _, err = io.WriteString(conn, c.answer); err != nil || c.closes {
						return
					}
				}
			})
			reference := &http.Transport{}
			defer reference.CloseIdleConnections()
			want := ask(t, reference, address)
			transport := newTransport(t)
			connections.Store(0)
			assert.Equal(t, want, ask(t, transport, address))
			assert.Equal(t, want, ask(t, transport, address))
			assert.Equal(t, c.reused, connections.Load() == 1, "another request follows on the connection")
			transport.CloseIdleConnections()
		})
	}
}

// A server sees the same requests as from net/http, except that no encoding of the answer is asked for.
func TestRequestsAreWrittenAsByNetHTTP(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	address := listen(t, func(conn net.Conn, from *bufio.Reader) {
		for {
			r, body, err := request(from)
			if err != nil {
				return
			}
			r.Header.Del("Accept-Encoding")
			seen <- fmt.Sprint(r.Method, r.RequestURI, r.Host, r.Header, r.ContentLength, r.TransferEncoding, r.Close, body)
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	reference := &http.Transport{}
	defer reference.CloseIdleConnections()
	transport := newTransport(t)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, path := range []string{"", "/", "/v1/chat?a=b&c=%20d", "/a%2Fb/é", "/?"} {
			for _, body := range []string{"", "x", strings.Repeat("x", 100_000)} {
				if method == http.MethodGet && body != "" {
					continue
				}
				for _, header := range []http.Header{
					{},
					{"X-A": {"1", "2"}, "User-Agent": {"me"}, "Content-Length": {"7"}, "Host": {"b"}, "Transfer-Encoding": {"x"}},
					{"User-Agent": {""}},
					{"User-Agent": {"me", "you"}},
					{"User-Agent": nil},
				} {
					var saw []string
					for _, rt := range []http.RoundTripper{reference, transport} {
						r, err := http.NewRequestWithContext(t.Context(), method, address+path, strings.NewReader(body))
						require.NoError(t, err)
						r.Header, r.Host = maps.Clone(header), "the.host:80"
						answer, err := rt.RoundTrip(r)
						require.NoError(t, err)
						require.NoError(t, answer.Body.Close())
						saw = append(saw, waittest.For(t, seen, "the request"))
					}
					assert.Equal(t, saw[0], saw[1])
				}
			}
		}
	}
}

// What is not a plain request is made elsewhere, and what would be another request than it seems is not made.
func TestOnlyPlainRequestsAreMadeHere(t *testing.T) {
	t.Parallel()
	transport := newTransport(t)
	transport.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("dialled") }
	transport.Proxy = func(r *http.Request) (*url.URL, error) {
		switch r.URL.Host {
		case "by.proxy":
			return r.URL, nil
		case "by.error":
			return nil, errors.New("no proxy")
		}
		return nil, nil
	}
	for name, c := range map[string]struct {
		change func(*http.Request)
		says   string
	}{
		"plain":             {func(*http.Request) {}, "dialled"},
		"encrypted":         {func(r *http.Request) { r.URL.Scheme = "https" }, "elsewhere"},
		"by a proxy":        {func(r *http.Request) { r.URL.Host = "by.proxy" }, "elsewhere"},
		"by a wrong proxy":  {func(r *http.Request) { r.URL.Host = "by.error" }, "elsewhere"},
		"of no length":      {func(r *http.Request) { r.ContentLength = -1 }, "elsewhere"},
		"of any length":     {func(r *http.Request) { r.ContentLength = 0 }, "elsewhere"},
		"another method":    {func(r *http.Request) { r.Method = http.MethodConnect }, "elsewhere"},
		"an upgrade":        {func(r *http.Request) { r.Header.Set("Connection", "Upgrade") }, "elsewhere"},
		"an expectation":    {func(r *http.Request) { r.Header.Set("Expect", "100-continue") }, "elsewhere"},
		"trailers":          {func(r *http.Request) { r.Trailer = http.Header{"A": nil} }, "elsewhere"},
		"a last one":        {func(r *http.Request) { r.Close = true }, "elsewhere"},
		"an opaque address": {func(r *http.Request) { r.URL.Opaque = "//x/y" }, "elsewhere"},
		"no host":           {func(r *http.Request) { r.URL.Host, r.Host = "", "" }, "elsewhere"},
		"a host of lines":   {func(r *http.Request) { r.Host = "a\r\nX: y" }, "elsewhere"},
		"a zone":            {func(r *http.Request) { r.Host = "[fe80::1%en0]" }, "elsewhere"},
		"no address":        {func(r *http.Request) { r.URL.Host = "" }, "elsewhere"},
		"an odd address":    {func(r *http.Request) { r.URL.Host = "é.host" }, "elsewhere"},
		"nil of a length":   {func(r *http.Request) { r.Body = nil }, "elsewhere"},
		"none of a length":  {func(r *http.Request) { r.Body = http.NoBody }, "elsewhere"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.host/", strings.NewReader("{}"))
		require.NoError(t, err)
		c.change(r)
		_, err = transport.RoundTrip(r)
		assert.ErrorContains(t, err, c.says, name)
	}
}

// A request goes to the host of its address, at port 80 if it has none, whatever host it names.
func TestWhereARequestGoes(t *testing.T) {
	t.Parallel()
	transport := newTransport(t)
	transport.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
		return nil, fmt.Errorf("%s %s", network, address)
	}
	for at, want := range map[string]string{
		"a.host": "tcp a.host:80", "a.host:8000": "tcp a.host:8000", "[::1]": "tcp [::1]:80", "[::1]:8000": "tcp [::1]:8000",
		"ada:pass-word@a.host": "tcp a.host:80",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at+"/", strings.NewReader("{}"))
		require.NoError(t, err)
		r.Host = "the.host:9"
		_, err = transport.RoundTrip(r)
		assert.EqualError(t, err, want)
	}
}

// Nothing of a request is written whose headers or address would be more than one line each.
func TestALineIsOneLine(t *testing.T) {
	t.Parallel()
	address := listen(t, func(_ net.Conn, from *bufio.Reader) {
		if _, err := from.ReadByte(); err == nil {
			t.Error("something was written")
		}
	})
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Header["A\r\nB"] = []string{"x"} },
		func(r *http.Request) { r.Header["A"] = []string{"x\r\nB: y"} },
		func(r *http.Request) { r.Header["A"] = []string{"x\x00"} },
		func(r *http.Request) { r.Header[""] = []string{"x"} },
		func(r *http.Request) { r.URL.RawQuery = "a\r\nb" },
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader("{}"))
		require.NoError(t, err)
		change(r)
		transport := newTransport(t)
		_, err = transport.RoundTrip(r)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "\n")
	}
}

// A server may close a connection that has no request. The next request is not written to it.
func TestAConnectionThatTheServerClosedIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{"closed": "", "closed with a word": "HTTP/1.1 408 Request Timeout\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := listen(t, func(conn net.Conn, from *bufio.Reader) {
				if _, _, err := request(from); err == nil {
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
				}
				_, _ = io.WriteString(conn, last)
			})
			transport := newTransport(t)
			var conns []*net.TCPConn
			transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				if tcp, ok := conn.(*net.TCPConn); ok {
					conns = append(conns, tcp)
				}
				return conn, err
			}
			for n := range 3 {
				assert.Equal(t, "hi", ask(t, transport, address).Body)
				require.Len(t, conns, n+1)
				awaitEnd(t, conns[n])
			}
		})
	}
}

// awaitEnd waits until the server's end of a connection, or a word of it, has come.
func awaitEnd(t *testing.T, conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return // It was closed here.
	}
	_ = raw.Control(func(fd uintptr) {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			assert.Equal(t, 1, n)
			return
		}
	})
}

// A server that takes a request and closes may have begun to answer it: it is not asked again, on a new connection or
// on one that was used before.
func TestARequestIsMadeOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	address := listen(t, func(conn net.Conn, from *bufio.Reader) {
		for {
			_, body, err := request(from)
			if err != nil || asked.Add(1) > 1 && body == "{}" {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	transport := newTransport(t)
	assert.False(t, ask(t, transport, address).NoAnswer)
	assert.True(t, ask(t, transport, address).NoAnswer)
	assert.EqualValues(t, 2, asked.Load())
	assert.True(t, ask(t, transport, address).NoAnswer)
	assert.EqualValues(t, 3, asked.Load())
}

// A server may answer before it has read the request, whether it then closes or reads no more.
func TestAnAnswerMayComeBeforeTheRequestHasEnded(t *testing.T) {
	t.Parallel()
	for name, stays := range map[string]bool{"and the server closes": false, "and the server stays": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connections atomic.Int64
			done := make(chan struct{})
			defer close(done)
			address := listen(t, func(conn net.Conn, from *bufio.Reader) {
				connections.Add(1)
				if _, err := http.ReadRequest(from); err != nil {
					return
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!")
				if stays {
					<-done
				}
			})
			transport := newTransport(t)
			for n := range int64(2) {
				answer, err := post(waittest.Context(t), transport, address, strings.Repeat("x", 64<<20))
				require.NoError(t, err)
				text, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				assert.Equal(t, "413 no!", fmt.Sprint(answer.StatusCode, " ", string(text)))
				assert.Equal(t, n+1, connections.Load())
			}
		})
	}
}

// unreadable is a body that breaks off.
type unreadable struct {
	io.Reader
	why error
}

func (u unreadable) Read(p []byte) (int, error) {
	if n, err := u.Reader.Read(p); err == nil {
		return n, nil
	}
	return 0, u.why
}

// A body that cannot be sent whole is the request's failure, and the server gets no request from it.
func TestABodyThatBreaksOff(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	address := listen(t, func(conn net.Conn, from *bufio.Reader) {
		if _, _, err := request(from); err == nil {
			requests.Add(1)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
	})
	for _, size := range []int{10, 1 << 20} {
		text := strings.Repeat("x", size)
		for says, body := range map[string]io.Reader{
			"the disk is broken":                       unreadable{strings.NewReader(text), errors.New("the disk is broken")},
			"the store has gone":                       unreadable{strings.NewReader(text), &net.OpError{Op: "read", Err: errors.New("the store has gone")}},
			fmt.Sprintf("the body has %d bytes", size): strings.NewReader(text),
		} {
			r, err := http.NewRequestWithContext(waittest.Context(t), http.MethodPost, address, body)
			require.NoError(t, err)
			r.ContentLength = int64(size) + 1
			_, err = newTransport(t).RoundTrip(r)
			assert.ErrorContains(t, err, says)
		}
	}
	assert.Zero(t, requests.Load())
}

// A body that is longer than its announced length is not cut in silence.
func TestABodyThatIsLongerThanAnnounced(t *testing.T) {
	t.Parallel()
	address := listen(t, func(_ net.Conn, from *bufio.Reader) {
		if _, _, err := request(from); err == nil {
			_, _ = from.ReadByte()
		}
	})
	for _, size := range []int{10, 1 << 20} {
		r, err := http.NewRequestWithContext(waittest.Context(t), http.MethodPost, address, strings.NewReader(strings.Repeat("x", size)))
		require.NoError(t, err)
		r.ContentLength = int64(size) - 2
		_, err = newTransport(t).RoundTrip(r)
		assert.ErrorContains(t, err, fmt.Sprintf("the body has %d bytes", size))
	}
}

// The end of its context ends a request wherever it is, with the cause, and the server sees its connection closed.
func TestTheEndOfTheContextEndsARequest(t *testing.T) {
	t.Parallel()
	left := errors.New("the client has left")
	for name, answer := range map[string]string{
		"before the answer": "", "in the head": "HTTP/1.1 200 OK\r\nContent-", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi",
		"in a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhi",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			came, closed := make(chan struct{}), make(chan struct{})
			address := listen(t, func(conn net.Conn, from *bufio.Reader) {
				defer close(closed)
				if _, _, err := request(from); err != nil {
					return
				}
				_, _ = io.WriteString(conn, answer)
				close(came)
				_, _ = from.ReadByte()
			})
			ctx, cancel := context.WithCancelCause(waittest.Context(t))
			ended := make(chan error, 1)
			go func() {
				got, err := post(ctx, newTransport(t), address, "{}")
				if err == nil {
					defer got.Body.Close()
					_, err = io.ReadAll(got.Body)
				}
				ended <- err
			}()
			waittest.For(t, came, "the request")
			cancel(left)
			require.ErrorIs(t, waittest.For(t, ended, "the end of the request"), left)
			waittest.For(t, closed, "the end of the connection")
		})
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(left)
	_, err := post(gone, newTransport(t), "http://127.0.0.1:1", "{}")
	require.ErrorIs(t, err, left)
}

// A body may be closed while it is read.
func TestABodyIsClosedWhileItIsRead(t *testing.T) {
	t.Parallel()
	address := listen(t, func(conn net.Conn, from *bufio.Reader) {
		if _, _, err := request(from); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi")
			_, _ = from.ReadByte()
		}
	})
	answer, err := post(waittest.Context(t), newTransport(t), address, "{}")
	require.NoError(t, err)
	_, err = io.ReadFull(answer.Body, make([]byte, 2))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := answer.Body.Read(make([]byte, 1))
		ended <- err
	}()
	require.NoError(t, answer.Body.Close())
	require.Error(t, waittest.For(t, ended, "the end of the read"))
	require.NoError(t, answer.Body.Close())
	_, err = answer.Body.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF, "the answer has not ended")
}

// A server cannot make a client hold an endless head, nor have it speak another protocol.
func TestAnswersThatAreRefused(t *testing.T) {
	t.Parallel()
	for says, write := range map[string]func(net.Conn){
		"the head of the answer is longer than 1048576 bytes": func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			for n := 0; ; n++ {
				if _, err := fmt.Fprintf(conn, "X-%d: %s\r\n", n, strings.Repeat("x", 4_000)); err != nil {
					return
				}
			}
		},
		"the head of the answer is longer": func(conn net.Conn) {
			for {
				if _, err := io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
					return
				}
			}
		},
		"the server changed the protocol": func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		},
		"the server closed the connection before it answered": func(net.Conn) {},
		"connection reset by peer": func(conn net.Conn) {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
		},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			address := listen(t, func(conn net.Conn, from *bufio.Reader) {
				if _, _, err := request(from); err == nil {
					write(conn)
				}
			})
			_, err := post(waittest.Context(t), newTransport(t), address, "{}")
			require.ErrorContains(t, err, says)
		})
	}
}

// Each of many callers gets the answer to its own request, also where some leave early.
func TestManyCallersGetTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(body[len(body)/2:])
	}))
	t.Cleanup(server.Close)
	transport := newTransport(t)
	var callers sync.WaitGroup
	for caller := range 16 {
		callers.Go(func() {
			for n := range 100 {
				body := strings.Repeat(fmt.Sprintf("%d-%d ", caller, n), 1+n*n)
				ctx, cancel := context.WithCancel(t.Context())
				if n%7 == 3 {
					go cancel()
				}
				answer, err := post(ctx, transport, server.URL, body)
				if err == nil {
					var got []byte
					if n%5 != 2 {
						got, err = io.ReadAll(answer.Body)
					}
					_ = answer.Body.Close()
					if err == nil && len(got) > 0 && string(got) != body {
						t.Errorf("%.20q was answered by %.20q", body, got)
					}
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	waittest.Return(t, callers.Wait, "the callers")
}

// Of whatever a server may send, no more is made of it than by net/http.
func FuzzAnswers(f *testing.F) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nhi",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "HTTP/1.1 204 No\r\nTrailer: a\r\n\r\n", "HTTP/1.1 000 \r\n\r\nhi", "",
	} {
		f.Add([]byte(answer))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		if strings.Contains(string(sent), " 101") {
			t.Skip("net/http hands over a connection that changes its protocol")
		}
		dial := func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				if _, _, err := request(bufio.NewReader(server)); err == nil {
					_, _ = server.Write(sent)
				}
			}()
			return client, nil
		}
		reference := &http.Transport{DialContext: dial, DisableCompression: true}
		defer reference.CloseIdleConnections()
		transport := &http1.Transport{Dial: dial, Other: elsewhere{}, IdlePerHost: 1, IdleTimeout: time.Minute}
		defer transport.CloseIdleConnections()
		assert.Equal(t, ask(t, reference, "http://a.host/"), ask(t, transport, "http://a.host/"))
	})
}
