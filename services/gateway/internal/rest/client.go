package rest

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/grpcserver"
)

// client is a connection for calls of REST clients. It moves the values of headers into the request, bounds the
// request's size as for a client (the services accept larger messages from each other), and ends those that
// only wait when the gateway stops.
type client struct {
	grpc.ClientConnInterface
	running context.Context //nolint:containedctx // The life of the gateway.
}

// clients returns the connections for calls of REST clients.
func clients(running context.Context, conns map[string]grpc.ClientConnInterface) map[string]grpc.ClientConnInterface {
	all := make(map[string]grpc.ClientConnInterface, len(conns))
	for name, conn := range conns {
		all[name] = client{conn, running}
	}
	return all
}

// Invoke implements [grpc.ClientConnInterface].
func (c client) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	if err := prepare(ctx, request); err != nil {
		return err
	}
	if !grpcserver.Waits(method) {
		return c.ClientConnInterface.Invoke(ctx, method, request, reply, options...)
	}
	ctx, waited := c.untilStopping(ctx)
	return waited(c.ClientConnInterface.Invoke(ctx, method, request, reply, options...))
}

// untilStopping returns a context that also ends when the gateway stops, and the function that takes the call's error.
func (c client) untilStopping(ctx context.Context) (context.Context, func(error) error) {
	call, end := context.WithCancelCause(ctx)
	ended := grpcserver.UntilStopping(call, c.running, "gateway", end)
	context.AfterFunc(ctx, func() { _ = ended(nil) }) // The mapping ends ctx with the request.
	return call, ended
}

// NewStream implements [grpc.ClientConnInterface].
func (c client) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	ended := func(err error) error { return err }
	if grpcserver.Waits(method) {
		ctx, ended = c.untilStopping(ctx)
	}
	s, err := c.ClientConnInterface.NewStream(ctx, desc, method, options...)
	if err != nil {
		return nil, ended(err)
	}
	return clientStream{s, ctx, ended}, nil
}

// clientStream is a server stream or an upload.
type clientStream struct {
	grpc.ClientStream
	ctx context.Context //nolint:containedctx // The stream's own says nothing before the first answer.
	// ended takes the error of the stream, and returns another one if a stop of the gateway has ended it.
	ended func(error) error
}

// SendMsg implements [grpc.ClientStream].
func (s clientStream) SendMsg(m any) error {
	if err := prepare(s.ctx, m); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg implements [grpc.ClientStream].
func (s clientStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return s.ended(err)
	}
	return nil
}

// prepare returns the request to send, made of the request that the mapping has decoded.
func prepare(ctx context.Context, request any) error {
	m, ok := request.(proto.Message)
	if !ok {
		return nil
	}
	if err := setHeaders(ctx, m); err != nil {
		return err
	}
	return grpcserver.CheckRequest(m)
}
