package rest

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/grpcserver"
)

// client is a connection for calls of REST clients. It moves the values of headers into the request, and bounds the
// request's size as for a client: the services accept larger messages from each other.
type client struct{ grpc.ClientConnInterface }

// Invoke implements [grpc.ClientConnInterface].
func (c client) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	if err := prepare(ctx, request); err != nil {
		return err
	}
	return c.ClientConnInterface.Invoke(ctx, method, request, reply, options...)
}

// NewStream implements [grpc.ClientConnInterface].
func (c client) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, desc, method, options...)
	return clientStream{s, ctx}, err
}

// clientStream is a server stream or an upload.
type clientStream struct {
	grpc.ClientStream
	ctx context.Context //nolint:containedctx // The stream's own says nothing before the first answer.
}

// SendMsg implements [grpc.ClientStream].
func (s clientStream) SendMsg(m any) error {
	if err := prepare(s.ctx, m); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
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
