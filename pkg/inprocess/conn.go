package inprocess

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Conn is a client's connection. It is safe for concurrent use; Close ends it with the calls that are under way.
type Conn struct {
	listener *Listener
	maxBytes int
	calls    calls
}

// closing is how calls end with their connection.
var closing = status.New(codes.Canceled, "the connection is closing")

// Dial makes a connection whose messages, in either direction, have at most maxBytes.
func (l *Listener) Dial(maxBytes int) *Conn {
	return &Conn{listener: l, maxBytes: maxBytes, calls: newCalls()}
}

// Close ends the connection; calls under way fail with CANCELLED, whichever server has them.
func (c *Conn) Close() error {
	c.calls.cut(closing)
	return nil
}

// Invoke implements [grpc.ClientConnInterface].
func (c *Conn) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.open(ctx, &grpc.StreamDesc{}, method, options)
	if err != nil {
		return err
	}
	if err := s.SendMsg(request); err != nil {
		return err
	}
	return s.RecvMsg(reply)
}

// NewStream implements [grpc.ClientConnInterface].
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.open(ctx, desc, method, options)
}

func (c *Conn) open(ctx context.Context, desc *grpc.StreamDesc, method string, options []grpc.CallOption) (*clientStream, error) {
	s := &clientStream{ctx: ctx, desc: desc, codec: protocol()}
	for _, option := range options {
		switch o := option.(type) {
		case grpc.ForceCodecV2CallOption:
			s.codec = o.CodecV2
		case grpc.HeaderCallOption:
			s.header = append(s.header, o.HeaderAddr)
		case grpc.TrailerCallOption:
			s.trailer = append(s.trailer, o.TrailerAddr)
		case grpc.StaticMethodCallOption, grpc.FailFastCallOption, grpc.EmptyCallOption: // of no account here: calls wait for their server
		default:
			return nil, status.Errorf(codes.Internal, "calls within the process do not know the option %T", option)
		}
	}
	call, err := newCall(ctx, c, method)
	if err != nil {
		return nil, err
	}
	s.call = call
	switch {
	case ctx.Err() != nil:
		return nil, s.leave()
	case !c.calls.add(call):
		return nil, s.fail(closing)
	case !c.listener.await(call):
		c.calls.remove(call)
		return nil, call.outcome().Err()
	}
	return s, nil
}

// clientStream is the caller's side of a call.
type clientStream struct {
	*call

	ctx             context.Context //nolint:containedctx // A stream has one.
	desc            *grpc.StreamDesc
	codec           encoding.CodecV2
	header, trailer []*metadata.MD
	closed          bool // the caller has sent all; of its sending goroutine
	answered        bool // the one answer was received; of its receiving goroutine
}

var _ grpc.ClientStream = (*clientStream)(nil)

// Context implements [grpc.ClientStream].
func (s *clientStream) Context() context.Context { return s.ctx }

// Header implements [grpc.ClientStream].
func (s *clientStream) Header() (metadata.MD, error) {
	select {
	case <-s.headed:
	case <-s.ctx.Done():
		return nil, s.leave()
	}
	header, _ := s.metadata()
	return header, nil
}

// Trailer implements [grpc.ClientStream].
func (s *clientStream) Trailer() metadata.MD {
	_, trailer := s.metadata()
	return trailer
}

// CloseSend implements [grpc.ClientStream].
func (s *clientStream) CloseSend() error {
	if !s.closed {
		s.closed = true
		s.up.end()
	}
	return nil
}

// SendMsg implements [grpc.ClientStream].
func (s *clientStream) SendMsg(m any) error {
	if s.closed {
		return status.Error(codes.Internal, "SendMsg called after CloseSend")
	}
	message, err := s.codec.Marshal(m)
	if err != nil {
		return s.fail(status.Newf(codes.Internal, "grpc: error while marshaling: %v", err))
	}
	if size := message.Len(); size > s.conn.maxBytes {
		message.Free()
		return s.fail(status.Convert(tooLarge("send", size, s.conn.maxBytes)))
	}
	// How a call ended that takes no more is RecvMsg's to tell.
	sent := s.up.put(message, s.call.ctx.Done())
	if !sent {
		message.Free()
	}
	switch {
	case !s.desc.ClientStreams:
		return s.CloseSend()
	case !sent:
		return io.EOF
	}
	return nil
}

// RecvMsg implements [grpc.ClientStream].
func (s *clientStream) RecvMsg(m any) error {
	err := s.receive(m)
	switch {
	case s.desc.ServerStreams:
	case err == io.EOF && !s.answered: //nolint:errorlint // as receive returns it
		err = status.Error(codes.Internal, "cardinality violation: received no response message from non-server-streaming RPC")
	case err == nil:
		s.answered = true
		// The one answer counts when the call has ended well.
		if err = s.receive(nil); err == io.EOF { //nolint:errorlint // as receive returns it
			err = nil
			s.report()
		}
	}
	if err != nil {
		s.report()
	}
	return err
}

// receive takes the next message, into nothing where there should be none.
func (s *clientStream) receive(m any) error {
	message, ended, ok := s.down.take(s.ctx.Done())
	switch {
	case !ok:
		return s.leave()
	case ended:
		if err := s.outcome().Err(); err != nil {
			return err
		}
		return io.EOF
	}
	defer message.Free()
	switch size := message.Len(); {
	case m == nil:
		return s.fail(status.New(codes.Internal, "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message"))
	case size > s.conn.maxBytes:
		return s.fail(status.Newf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", size, s.conn.maxBytes))
	}
	if err := s.codec.Unmarshal(message, m); err != nil {
		return s.fail(status.Newf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err))
	}
	return nil
}

// leave ends the call with the caller's context.
func (s *clientStream) leave() error {
	return s.fail(status.FromContextError(s.ctx.Err()))
}

// fail ends the call on the caller's side. Where the handler has ended it before, that counts.
func (s *clientStream) fail(st *status.Status) error {
	s.finish(st)
	return s.outcome().Err()
}

// report fills in what the caller's options ask for.
func (s *clientStream) report() {
	header, trailer := s.metadata()
	for _, to := range s.header {
		*to = header
	}
	for _, to := range s.trailer {
		*to = trailer
	}
}
