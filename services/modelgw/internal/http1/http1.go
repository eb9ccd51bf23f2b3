// Package http1 is a client of HTTP/1.1 in clear (RFC 9112), for models that are served in one's own network. A short
// request and its answer take one goroutine, the caller's, and no more memory than a connection's buffer, where those
// of net/http take three and two buffers. To relay such a request takes a third less processor time.
//
// It writes requests and keeps connections. Answers are read by net/http's own reader of them, and whatever is not a
// plain request is net/http's altogether (see [Transport.RoundTrip]).
package http1

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Transport makes requests. It is safe for concurrent use. Its fields are not to be changed once it is used.
type Transport struct {
	// Dial connects. Required.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Proxy returns the proxy of a request, or nil for none; nil is none for all.
	Proxy func(*http.Request) (*url.URL, error)
	// Other makes the requests that are not plain. Required.
	Other http.RoundTripper
	// IdlePerHost is how many connections to one host are kept for later requests; zero is none.
	IdlePerHost int
	// IdleTimeout is the least time for which they are kept. They are checked at such intervals, so that one is kept
	// for less than twice as long.
	IdleTimeout time.Duration

	idle pool
}

// RoundTrip implements http.RoundTripper. Other makes the request if it has another scheme than http, passes a proxy,
// has a body of unknown length, or needs anything else of the protocol beyond a request and its answer: an upgrade,
// trailers, a connection of its own, "100 Continue".
//
// A request is written once: where the connection breaks, it is the caller who knows whether it may be made again. A
// connection that the server has closed is not used for another request.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.plain(r) {
		return t.Other.RoundTrip(r)
	}
	answer, err := t.roundTrip(r)
	if err != nil && r.Context().Err() != nil {
		err = context.Cause(r.Context()) // It is why the connection was closed.
	}
	return answer, err
}

// CloseIdleConnections closes the connections that are kept for later, here and in Other.
func (t *Transport) CloseIdleConnections() {
	t.idle.closeAll()
	if other, ok := t.Other.(interface{ CloseIdleConnections() }); ok {
		other.CloseIdleConnections()
	}
}

// plain reports whether RoundTrip makes a request by itself.
func (t *Transport) plain(r *http.Request) bool {
	if r.URL.Scheme != "http" || r.URL.Opaque != "" || r.URL.Host == "" || !httpguts.ValidHostHeader(r.URL.Host) {
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost || r.Close || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 {
		return false
	}
	if none := r.Body == nil || r.Body == http.NoBody; r.ContentLength < 0 || none != (r.ContentLength == 0) {
		return false
	}
	for _, name := range []string{"Connection", "Upgrade", "Expect", "Te"} {
		if len(r.Header[name]) > 0 {
			return false
		}
	}
	if host := hostOf(r); strings.Contains(host, "%") || !httpguts.ValidHostHeader(host) {
		return false
	}
	if t.Proxy == nil {
		return true
	}
	proxy, err := t.Proxy(r)
	return proxy == nil && err == nil
}

// hostOf is the host that a request names.
func hostOf(r *http.Request) string {
	if r.Host != "" {
		return r.Host
	}
	return r.URL.Host
}

// address is where a request goes.
func address(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

func (t *Transport) roundTrip(r *http.Request) (*http.Response, error) {
	c, err := t.conn(r.Context(), address(r.URL))
	if err != nil {
		closeBody(r)
		return nil, err
	}
	x := &exchange{transport: t, conn: c}
	x.stop = context.AfterFunc(r.Context(), c.close)
	answer, err := c.roundTrip(r)
	if err != nil {
		x.end(false)
		return nil, err
	}
	x.reusable = !answer.Close
	if answer.Body == http.NoBody {
		x.end(true)
		return answer, nil
	}
	x.ctx, x.body, answer.Body = r.Context(), answer.Body, x
	return answer, nil
}

// conn returns a connection.
func (t *Transport) conn(ctx context.Context, address string) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for c := t.idle.take(address); c != nil; c = t.idle.take(address) {
		if c.quiet() {
			return c, nil
		}
		c.close()
	}
	dialled, err := t.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newConn(dialled, address), nil
}

// closeBody closes the body of a request, as every transport has to.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
