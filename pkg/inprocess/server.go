package inprocess

import (
	"cmp"
	"context"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Options set a server up.
type Options struct {
	// Unary and Stream are called around every handler.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// ReceiveBytes and SendBytes bound the messages that it takes and gives.
	ReceiveBytes, SendBytes int
	// Workers is how many goroutines take calls one after another, so that most calls find a stack that has grown to
	// what they need. Calls beyond them get goroutines of their own.
	Workers int
}

// Server carries the calls out that come by way of listeners. Services are registered before it serves.
type Server struct {
	options  Options
	services map[string]service
	calls    calls
	work     chan *call
	start    sync.Once // of the workers
}

// service is what was registered under one name.
type service struct {
	impl    any
	unary   map[string]*grpc.MethodDesc
	streams map[string]*grpc.StreamDesc
}

// NewServer makes a server.
func NewServer(o Options) *Server {
	return &Server{options: o, services: map[string]service{}, calls: newCalls(), work: make(chan *call)}
}

// RegisterService implements [grpc.ServiceRegistrar].
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	known := service{impl: impl, unary: map[string]*grpc.MethodDesc{}, streams: map[string]*grpc.StreamDesc{}}
	for i := range desc.Methods {
		known.unary[desc.Methods[i].MethodName] = &desc.Methods[i]
	}
	for i := range desc.Streams {
		known.streams[desc.Streams[i].StreamName] = &desc.Streams[i]
	}
	s.services[desc.ServiceName] = known
}

// Serve takes the calls of a listener, until Close.
func (s *Server) Serve(l *Listener) {
	s.start.Do(func() {
		for range s.options.Workers {
			go s.worker()
		}
	})
	l.set(s)
}

// Close takes no more calls: those that come wait for another server.
func (s *Server) Close() { s.calls.close() }

// Stop takes no more calls and cuts those under way off: callers hear of it at once, and handlers by their contexts.
// Wait waits for the handlers.
func (s *Server) Stop() { s.calls.cut(status.New(codes.Unavailable, "the server is stopping")) }

// Wait waits until the handlers of all calls have returned. It is called after Close or Stop.
func (s *Server) Wait() { <-s.calls.done }

// begin takes a call on, unless the server is closed.
func (s *Server) begin(c *call) bool {
	if !s.calls.add(c) {
		return false
	}
	select {
	case s.work <- c:
	default:
		go s.run(c)
	}
	return true
}

func (s *Server) worker() {
	for {
		select {
		case c := <-s.work:
			s.run(c)
		case <-s.calls.done:
			return
		}
	}
}

// run has a call handled.
func (s *Server) run(c *call) {
	c.finish(statusOf(s.handle(c)))
	c.conn.calls.remove(c)
	s.calls.remove(c)
}

func (s *Server) handle(c *call) error {
	if err := c.ctx.Err(); err != nil {
		return err // it ended while it began
	}
	path, rooted := strings.CutPrefix(c.method, "/")
	name, method, ok := strings.Cut(path, "/")
	if !rooted || !ok {
		return status.Errorf(codes.Unimplemented, "malformed method name: %q", c.method)
	}
	known, ok := s.services[name]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown service %s", name)
	}
	stream := &serverStream{call: c, server: s}
	stream.ctx = grpc.NewContextWithServerTransportStream(c.ctx, transport{c})
	if desc := known.unary[method]; desc != nil {
		reply, err := desc.Handler(known.impl, stream.ctx, stream.recvRequest, s.options.Unary)
		if err != nil {
			return err
		}
		return stream.SendMsg(reply)
	}
	if desc := known.streams[method]; desc != nil {
		info := &grpc.StreamServerInfo{FullMethod: c.method, IsClientStream: desc.ClientStreams, IsServerStream: desc.ServerStreams}
		return s.options.Stream(known.impl, stream, info, desc.Handler)
	}
	return status.Errorf(codes.Unimplemented, "unknown method %s for service %s", method, name)
}

// serverStream is the handler's side of a call.
type serverStream struct {
	*call

	ctx    context.Context //nolint:containedctx // A stream has one.
	server *Server
}

var _ grpc.ServerStream = (*serverStream)(nil)

// Context implements [grpc.ServerStream].
func (s *serverStream) Context() context.Context { return s.ctx }

// SetHeader implements [grpc.ServerStream].
func (s *serverStream) SetHeader(md metadata.MD) error { return s.setHeader(md) }

// SendHeader implements [grpc.ServerStream].
func (s *serverStream) SendHeader(md metadata.MD) error { return s.sendHeader(md) }

// SetTrailer implements [grpc.ServerStream].
func (s *serverStream) SetTrailer(md metadata.MD) {
	if err := s.setTrailer(md); err != nil {
		s.finish(status.Convert(err)) // as the network's client would, at such a trailer
	}
}

// SendMsg implements [grpc.ServerStream].
func (s *serverStream) SendMsg(m any) error {
	message, err := protocol().Marshal(m)
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	if size := message.Len(); size > s.server.options.SendBytes {
		message.Free()
		return tooLarge("send", size, s.server.options.SendBytes)
	}
	s.flushHeader()
	if s.ctx.Err() != nil || !s.down.put(message, s.ctx.Done()) {
		message.Free()
		return status.FromContextError(cmp.Or(s.ctx.Err(), context.Canceled)).Err()
	}
	return nil
}

// RecvMsg implements [grpc.ServerStream].
func (s *serverStream) RecvMsg(m any) error {
	message, ended, ok := s.up.take(s.ctx.Done())
	switch {
	case !ok:
		return status.FromContextError(s.ctx.Err()).Err()
	case ended:
		return io.EOF
	}
	defer message.Free()
	if size := message.Len(); size > s.server.options.ReceiveBytes {
		return status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", size, s.server.options.ReceiveBytes)
	}
	if err := protocol().Unmarshal(message, m); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// recvRequest receives the one message of a unary call.
func (s *serverStream) recvRequest(m any) error {
	err := s.RecvMsg(m)
	if err == io.EOF { //nolint:errorlint // as RecvMsg returns it
		return status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
	}
	return err
}

// transport lets handlers set headers by their context, as [grpc.SetHeader] does.
type transport struct{ call *call }

var _ grpc.ServerTransportStream = transport{}

// Method implements [grpc.ServerTransportStream].
func (t transport) Method() string { return t.call.method }

// SetHeader implements [grpc.ServerTransportStream].
func (t transport) SetHeader(md metadata.MD) error { return t.call.setHeader(md) }

// SendHeader implements [grpc.ServerTransportStream].
func (t transport) SendHeader(md metadata.MD) error { return t.call.sendHeader(md) }

// SetTrailer implements [grpc.ServerTransportStream].
func (t transport) SetTrailer(md metadata.MD) error { return t.call.setTrailer(md) }
