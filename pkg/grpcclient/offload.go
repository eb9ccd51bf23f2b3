package grpcclient

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// requestLimits define which values of a request are offloaded.
var requestLimits = offload.Limits{Value: offload.LargeBytes, Message: bound.MessageBytes, ContentOnly: true}

// offloading makes unary calls with offloaded values.
func offloading(store offload.Store) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		m, ok := request.(proto.Message)
		if !ok {
			return invoke(ctx, method, request, reply, cc, options...)
		}
		sent, err := offload.Put(ctx, store, offload.Project(m), m, requestLimits)
		if err != nil {
			return err
		}
		if err := invoke(ctx, method, sent, reply, cc, options...); err != nil {
			return err
		}
		return whole(ctx, store, m, reply)
	}
}

// whole restores the offloaded values of a response, which may be as large as an event of a journal.
func whole(ctx context.Context, store offload.Store, request proto.Message, answer any) error {
	m, ok := answer.(proto.Message)
	if !ok {
		return nil
	}
	err := offload.Take(ctx, store, offload.Project(request), m, bound.JournalValuesBytes)
	if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST) {
		return rpcerr.Internal("an answer refers to what is not in the folder of bodies, which all services share: %w", err)
	}
	return err
}

// offloadingStream is offloading for a stream.
type offloadingStream struct {
	grpc.ClientStream
	store offload.Store
	first atomic.Pointer[proto.Message] // that was sent
}

func (s *offloadingStream) SendMsg(m any) error {
	request, ok := m.(proto.Message)
	if !ok {
		return s.ClientStream.SendMsg(m)
	}
	s.first.CompareAndSwap(nil, &request)
	sent, err := offload.Put(s.Context(), s.store, offload.Project(*s.first.Load()), request, requestLimits)
	if err != nil {
		return err
	}
	return s.ClientStream.SendMsg(sent)
}

func (s *offloadingStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	if first := s.first.Load(); first != nil {
		return whole(s.Context(), s.store, *first, m)
	}
	return nil
}
