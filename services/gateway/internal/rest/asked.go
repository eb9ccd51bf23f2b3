package rest

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/grpcserver"
)

// asked is a connection that carries what a client may ask: the services behind it take more from each other.
type asked struct{ grpc.ClientConnInterface }

// Invoke implements [grpc.ClientConnInterface].
func (c asked) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	if err := check(request); err != nil {
		return err
	}
	return c.ClientConnInterface.Invoke(ctx, method, request, reply, options...)
}

// NewStream implements [grpc.ClientConnInterface].
func (c asked) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, desc, method, options...)
	return askedStream{s}, err
}

type askedStream struct{ grpc.ClientStream }

// SendMsg implements [grpc.ClientStream].
func (s askedStream) SendMsg(m any) error {
	if err := check(m); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
}

func check(m any) error {
	if message, ok := m.(proto.Message); ok {
		return grpcserver.CheckRequest(message, grpcserver.MaxMessageBytes)
	}
	return nil
}
