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

// unauthenticatedCalls are the calls without a credential that run. When another one comes than there may be, the
// oldest is ended, so that health checks are answered while somebody holds all calls that there are.
type unauthenticatedCalls struct {
	max int

	mu      sync.Mutex
	running list.List // of context.CancelCauseFunc, the oldest first
}

var errCrowded = errors.New("too many calls without a credential")

// serve calls handler with a stream whose messages have the bound of strangers'. It ends the oldest call where there
// are too many.
func (s *unauthenticatedCalls) serve(ctx context.Context, ss grpc.ServerStream, handler func(grpc.ServerStream) error) error {
	defer s.enter(ender(ctx))()
	own, _ := ctx.Value(weighedKey{}).(weighed)
	err := handler(&unauthenticatedStream{ServerStream: ss, weighed: own})
	if errors.Is(context.Cause(ctx), errCrowded) {
		return status.Errorf(codes.ResourceExhausted, "more than %d calls without a credential; send the token", s.max)
	}
	return err
}

// enter notes a call, by what ends it. The returned function forgets it.
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
		s.running.Remove(own) // Nothing, where it was removed before.
	}
}

// unauthenticatedStream receives small messages alone, and its connection's meter knows what it receives and sends.
type unauthenticatedStream struct {
	grpc.ServerStream
	weighed // nothing on a connection whose other calls have shown a credential
	// reserved says that the meter has room for the answer to the last message.
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

// reserve waits until there is room for an answer, where answers are so large that none should be made before, and
// until the work of making it is allowed.
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

// messageHeader is the length of what each message begins with: whether it is compressed, and how long it is.
const messageHeader = 5

// incoming is what gRPC's transport has of a call: the framing of messages is then in our hands, and so is their bound,
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

// connections has calls know the connection that they come on, which is metered. Beside that it is the credentials that
// it holds.
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
