package http1

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
)

// exchange is a request and its answer on a connection, and the body of the answer. Close may be called during a Read.
type exchange struct {
	transport *Transport
	conn      *conn
	// ctx closes the connection when it ends, until stop.
	ctx  context.Context //nolint:containedctx // It is the request's.
	stop func() bool
	// body is that of the answer.
	body io.Reader
	// reusable means that another request may follow on the connection.
	reusable bool
	ended    atomic.Bool
}

// Read implements io.Reader.
func (x *exchange) Read(p []byte) (int, error) {
	n, err := x.body.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		x.end(true)
	default:
		x.end(false)
		if x.ctx.Err() != nil {
			err = context.Cause(x.ctx) // It is why the connection was closed.
		}
	}
	return n, err
}

// Close implements io.Closer. An answer that was not read to its end ends its connection.
func (x *exchange) Close() error {
	x.end(false)
	return nil
}

// end ends the exchange: its connection is kept if the answer was read whole and another may follow, else closed.
func (x *exchange) end(whole bool) {
	if x.ended.Swap(true) {
		return
	}
	c := x.conn
	if x.stop() && whole && x.reusable && c.reader.Buffered() == 0 && c.sent() {
		x.transport.idle.put(c, x.transport.IdlePerHost, x.transport.IdleTimeout)
		return
	}
	c.close()
}
