package transport

import (
	"context"
	"io"
	"net"
	"time"
)

// dial connects to a provider.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
	if tcp, ok := c.(*net.TCPConn); ok {
		return conn{tcp}, nil
	}
	return c, err
}

// conn sends the body of a request from where it is, in one write, if it is not encrypted. net/http reads bodies of a
// known length behind a limit, and so would copy them piece by piece.
type conn struct{ *net.TCPConn }

// ReadFrom implements io.ReaderFrom.
func (c conn) ReadFrom(r io.Reader) (int64, error) {
	if limited, ok := r.(*io.LimitedReader); ok {
		if body, ok := limited.R.(inMemory); ok && int64(body.Len()) <= limited.N {
			n, err := body.WriteTo(c.TCPConn)
			limited.N -= n
			return n, err
		}
	}
	return c.TCPConn.ReadFrom(r)
}

// inMemory is a body in memory, such as a *bytes.Reader or that of a buffer.Buffer.
type inMemory interface {
	io.WriterTo
	// Len is how many bytes are left.
	Len() int
}
