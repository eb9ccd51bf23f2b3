package grpcserver

import (
	"container/list"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// unauthenticatedCalls are the calls in flight without a credential. When another one exceeds their bound, the oldest
// is ended, so that health checks are answered while one client occupies all the others.
type unauthenticatedCalls struct {
	max int

	mu      sync.Mutex
	running list.List // of context.CancelCauseFunc, the oldest first
}

var errCrowded = errors.New("too many calls without a credential")

// serve calls handler with a stream whose messages have the bound of strangers'. It ends the oldest call if there are
// too many.
func (s *unauthenticatedCalls) serve(ctx context.Context, ss grpc.ServerStream, handler func(grpc.ServerStream) error) error {
	defer s.enter(ender(ctx))()
	own, _ := ctx.Value(weighedKey{}).(weighed)
	err := handler(&unauthenticatedStream{ServerStream: ss, weighed: own})
	if errors.Is(context.Cause(ctx), errCrowded) {
		return status.Errorf(codes.ResourceExhausted, "more than %d calls without a credential; send the token", s.max)
	}
	return err
}

// enter registers a call, by the function that ends it. The returned function removes it.
func (s *unauthenticatedCalls) enter(end context.CancelCauseFunc) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running.Len() >= s.max {
		oldest, _ := s.running.Remove(s.running.Front()).(context.CancelCauseFunc)
		oldest(errCrowded)
	}
	own := s.running.PushBack(end)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running.Remove(own) // No effect if it was removed before.
	}
}

// unauthenticatedStream receives small messages alone, and reports received and sent messages to its connection's
// meter.
type unauthenticatedStream struct {
	grpc.ServerStream
	weighed // nothing on a connection whose other calls have shown a credential
	// reserved means that the meter has reserved room for the answer to the last message.
	reserved bool
}

// SendMsg implements [grpc.ServerStream]. It waits while answers that the client does not read take too much.
func (s *unauthenticatedStream) SendMsg(m any) error {
	if answer, ok := m.(proto.Message); ok && s.meter != nil {
		size := proto.Size(answer) + messageHeader
		if s.reserved {
			s.meter.settle(s.call, size-bound.StrangerAnswerBytes)
			s.reserved = false
		} else if err := s.meter.answer(s.ServerStream.Context(), s.call, size); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}

// reserve waits for the room of an answer, if answers are so large that none should be made before, and for the work of
// making it.
func (s *unauthenticatedStream) reserve() error {
	if !s.large || s.reserved {
		return nil
	}
	if err := s.meter.pay(s.ServerStream.Context(), answerWork); err != nil {
		return err
	}
	err := s.meter.answer(s.ServerStream.Context(), s.call, bound.StrangerAnswerBytes)
	s.reserved = err == nil
	return err
}

// messageHeader is the length of a message's header: the compression flag and the length.
const messageHeader = 5

// incoming is a call in gRPC's transport: with it the server handles the framing of messages itself, and their bound,
// which gRPC has for whole servers only.
type incoming interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
}

// RecvMsg implements [grpc.ServerStream].
func (s *unauthenticatedStream) RecvMsg(m any) error {
	in, ok := grpc.ServerTransportStreamFromContext(s.ServerStream.Context()).(incoming)
	request, isProto := m.(proto.Message)
	if !ok || !isProto {
		return s.ServerStream.RecvMsg(m)
	}
	var header [messageHeader]byte
	if err := in.ReadMessageHeader(header[:]); err != nil {
		return err
	}
	if header[0] != 0 {
		return status.Error(codes.Unimplemented, "calls without a credential cannot be compressed")
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size > bound.StrangerMessageBytes {
		return rpcerr.RequestTooLarge("", bound.StrangerMessageBytes, "without a credential a message may have %d bytes and has %d; send the token", bound.StrangerMessageBytes, size)
	}
	if err := s.reserve(); err != nil {
		return err
	}
	data, err := in.Read(int(size))
	if err != nil {
		return err
	}
	defer data.Free()
	if s.meter != nil {
		s.meter.received(s.call, messageHeader+int(size))
	}
	if err := proto.Unmarshal(data.Materialize(), request); err != nil {
		return rpcerr.InvalidRequest("the message cannot be read")
	}
	return nil
}

// connections gives calls access to their metered connection, in addition to the wrapped credentials.
type connections struct {
	credentials.TransportCredentials
	// work is how much the server does for strangers.
	work *sharedWork
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c connections) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	m := newMeter(conn, c.work)
	return m, m, nil
}

// Clone implements [credentials.TransportCredentials].
func (c connections) Clone() credentials.TransportCredentials {
	return connections{c.TransportCredentials.Clone(), c.work}
}
