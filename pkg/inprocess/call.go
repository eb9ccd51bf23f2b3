package inprocess

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // The codec of whoever names none.
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// call is one call.
type call struct {
	method string
	conn   *Conn
	// ctx is the handler's: it ends with the caller's, and when the call is over.
	ctx    context.Context //nolint:containedctx // A call has a context of its own, as a stream has.
	cancel context.CancelFunc

	up, down pipe
	headed   chan struct{} // closed when the handler's header is there, or none will come

	mu      sync.Mutex
	header  metadata.MD
	sent    bool // the header is the caller's now
	trailer metadata.MD
	status  *status.Status // once over
}

// newCall makes a call with the deadline, the end and the outgoing headers of the caller's context.
func newCall(ctx context.Context, conn *Conn, method string) (*call, error) {
	md, _ := metadata.FromOutgoingContext(ctx)
	if err := carry(md); err != nil {
		return nil, err
	}
	c := &call{method: method, conn: conn, up: newPipe(), down: newPipe(), headed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(isolated{ctx})
	c.ctx = metadata.NewIncomingContext(c.ctx, md)
	c.ctx = peer.NewContext(c.ctx, &peer.Peer{Addr: address{}})
	return c, nil
}

// finish ends a call, once.
func (c *call) finish(s *status.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status != nil {
		return
	}
	c.status = s
	c.release()
	c.down.end()
	c.cancel()
}

// outcome is the status of a call that is over.
func (c *call) outcome() *status.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// setHeader adds to the header, as long as it was not sent.
func (c *call) setHeader(md metadata.MD) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent {
		return status.Error(codes.Internal, "the header was sent before")
	}
	return add(&c.header, md)
}

// sendHeader adds to the header and lets the caller have it.
func (c *call) sendHeader(md metadata.MD) error {
	if err := c.setHeader(md); err != nil {
		return err
	}
	c.flushHeader()
	return nil
}

// flushHeader lets the caller have the header as it is.
func (c *call) flushHeader() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
}

// release is flushHeader for who holds mu.
func (c *call) release() {
	if !c.sent {
		c.sent = true
		close(c.headed)
	}
}

func (c *call) setTrailer(md metadata.MD) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return add(&c.trailer, md)
}

// metadata returns header and trailer as they are now.
func (c *call) metadata() (header, trailer metadata.MD) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header.Copy(), c.trailer.Copy()
}

// isolated is a context without its values and causes: a caller's deadline and end reach the handler, what it carries
// for its own use does not.
type isolated struct{ context.Context } //nolint:containedctx // It is one.

// Value implements [context.Context].
func (isolated) Value(any) any { return nil }

// AfterFunc spares a context below this one a goroutine that waits for the end of this one; see [context.AfterFunc].
func (c isolated) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.Context, f) }

// protocol is the codec of whoever names none.
func protocol() encoding.CodecV2 { return encoding.GetCodecV2("proto") }

// statusOf is the status of a handler's error, as gRPC's own server gives it; never nil.
func statusOf(err error) *status.Status {
	if err == nil {
		return status.New(codes.OK, "")
	}
	if s, ok := status.FromError(err); ok {
		return s
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err)
	}
	return status.New(codes.Unknown, err.Error())
}

// tooLarge refuses a message in the words of gRPC.
func tooLarge(what string, size, limit int) error {
	return status.Errorf(codes.ResourceExhausted, "grpc: trying to %s message larger than max (%d vs. %d)", what, size, limit)
}
