// Package transport is shared by providers whose APIs are reached over a network: the client of those that speak HTTP,
// the records of exchanges, and the failures of connections.
package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/http1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/proxy"
)

// MaxErrorBytes bounds the body of an error.
const MaxErrorBytes = 64 << 10

// ErrAnswerTooLarge is the error for an answer over its bound.
var ErrAnswerTooLarge = errors.New("the answer is larger than max_answer_bytes of modelgw allows")

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	idlePerHost      = 256
	// readBuffer is the most that is passed on of a stream at once: a stream that comes quickly costs fewer writes.
	readBuffer = 16 << 10
)

// NewClient returns a client for calls of models: connections are reused, an answer has no time limit, and redirects
// are not followed, since they would carry keys elsewhere. It passes the proxy that the environment names now.
func NewClient() *http.Client {
	through := proxy.FromEnvironment()
	dial := (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	return &http.Client{
		Transport: &http1.Transport{
			Dial: dial, Proxy: through, IdlePerHost: idlePerHost, IdleTimeout: idleTimeout,
			Other: &http.Transport{
				Proxy:               through,
				DialContext:         dial,
				ForceAttemptHTTP2:   true,
				MaxIdleConns:        4 * idlePerHost,
				MaxIdleConnsPerHost: idlePerHost,
				IdleConnTimeout:     idleTimeout,
				TLSHandshakeTimeout: handshakeTimeout,
				ReadBufferSize:      readBuffer,
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// NewPost returns a request that posts a body. The caller must not release the body before the request was answered or
// has failed, since it may be sent anew on another connection. What still reads it then has a use of its own.
func NewPost(ctx context.Context, url string, body *buffer.Buffer) (*http.Request, error) {
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return nil, err
	}
	post.ContentLength = int64(len(body.Bytes))
	post.GetBody = func() (io.ReadCloser, error) { return body.Reader(body.Bytes), nil }
	post.Body = body.Reader(body.Bytes)
	return post, nil
}

// Read reads the body of an answer, up to a bound. The caller must release it, also if it breaks off: it then holds the
// received part.
func Read(answer *http.Response, bound int64) (*buffer.Buffer, error) {
	b := buffer.New()
	return b, b.Fill(io.LimitReader(answer.Body, bound), min(answer.ContentLength, bound), bound)
}

// ReadWhole reads the body of an answer that is useful only as a whole: one over its bound fails with
// ErrAnswerTooLarge. The caller must release it, also on failure.
func ReadWhole(answer *http.Response, bound int64) (*buffer.Buffer, error) {
	b := buffer.New()
	err := b.Fill(answer.Body, answer.ContentLength, bound)
	if errors.Is(err, buffer.ErrTooLarge) {
		err = ErrAnswerTooLarge
	}
	return b, err
}

// Limit returns a reader of a stream that subtracts the bytes it reads from left, and fails with ErrAnswerTooLarge if
// there are more.
func Limit(stream io.Reader, left *int64) io.Reader { return &limited{stream, left} }

type limited struct {
	stream io.Reader
	left   *int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if *l.left < 0 {
		return 0, ErrAnswerTooLarge
	}
	n, err := l.stream.Read(p[:min(int64(len(p)), *l.left+1)]) // One more, to distinguish the end from the bound.
	if *l.left -= int64(n); *l.left < 0 {
		return n, ErrAnswerTooLarge
	}
	return n, err
}

// IsWhole reports whether an answer is a JSON document, in case a stream was requested, or a page that a proxy put in
// the place of both. Some servers call their streams pages, so that what is called one counts by its beginning: its
// body is replaced by one that reads the same.
func IsWhole(answer *http.Response) bool {
	mediaType := provider.MediaType(answer.Header)
	if mediaType != "text/html" {
		return mediaType == "application/json"
	}
	body := bufio.NewReader(answer.Body)
	answer.Body = struct {
		io.Reader
		io.Closer
	}{body, answer.Body}
	for n := 1; ; n++ {
		begun, err := body.Peek(n)
		if err != nil {
			return true
		}
		if last := begun[n-1]; !strings.ContainsRune(" \t\r\n", rune(last)) {
			return last != 'd' && last != 'e' && last != ':' // of `data:`, `event:` and comments
		}
	}
}

// Unsupported is the failure of a request that a provider's format cannot express.
func Unsupported(name string, err error) error {
	if u, ok := errors.AsType[*dialect.UnsupportedError](err); ok {
		return rpcerr.In(u.Field, rpcerr.CapabilityUnsupported(u.What, "%s: %w", name, err))
	}
	return rpcerr.CapabilityUnsupported(err.Error(), "%s: %w", name, err)
}

// Broken is the failure of a connection to a provider. If the attempt's context has ended, Broken returns the context's
// error; if the account has no credential for the request, it returns the reason.
func Broken(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if end, ok := ctx.Deadline(); ok && errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(end) {
		return context.DeadlineExceeded // A dial ends at the deadline by itself, perhaps before the context does.
	}
	if refused := provider.Unsendable(err); refused != nil {
		return refused
	}
	_, malformed := errors.AsType[*dialect.MalformedError](err)
	if malformed || errors.Is(err, dialect.ErrEventTooLarge) || errors.Is(err, ErrAnswerTooLarge) {
		return &provider.Error{Provider: name, Invalid: true, Cause: err}
	}
	message := "the connection" + to(err) + " failed"
	if opError, ok := errors.AsType[*net.OpError](err); ok {
		message += " (" + opError.Op + ")"
	}
	return &provider.Error{Provider: name, Class: provider.Transient, Message: message, Cause: err}
}

// to names the host and port that a request went to: no more of its URL, which may hold credentials.
func to(err error) string {
	failed, ok := errors.AsType[*url.Error](err)
	if !ok {
		return ""
	}
	address, err := url.Parse(failed.URL)
	if err != nil || address.Hostname() == "" {
		return ""
	}
	return " to " + net.JoinHostPort(address.Hostname(), provider.Port(address))
}
