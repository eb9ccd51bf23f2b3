// Package proxy forwards gRPC calls to the service that implements them, without decoding the messages.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // The codec for everything that is not forwarded.
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Backends maps the full name of a service, such as `evalfleet.model.v1.ModelService`, to the connection to its
// backend.
type Backends map[string]grpc.ClientConnInterface

// Services returns the names, sorted.
func (b Backends) Services() []string {
	names := make([]string, 0, len(b))
	for name := range b {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ServerOptions make a gRPC server forward calls of unknown services to the backends. Headers go both ways; the
// caller's deadline and cancellation reach the backend.
func (b Backends) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.UnknownServiceHandler(b.handle),
	}
}

// frame is a message that is not decoded. It is received once and sent once: a buffer from one connection's pool
// returns there when the other connection has sent it.
type frame struct{ data mem.BufferSlice }

// codec copies frames unchanged and leaves all other messages (health, reflection) to the codec of protocol buffers.
type codec struct{ proto encoding.CodecV2 }

func (c codec) Name() string { return c.proto.Name() }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return f.data, nil
	}
	return c.proto.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		data.Ref()
		f.data = data
		return nil
	}
	return c.proto.Unmarshal(data, v)
}

// hopHeaders belong to one connection and are not forwarded.
var hopHeaders = []string{":authority", "content-type", "user-agent", "grpc-accept-encoding", "te"}

func (b Backends) handle(_ any, in grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(in)
	if !ok {
		return status.Error(codes.Internal, "call without a method")
	}
	service := strings.TrimPrefix(method[:strings.LastIndexByte(method, '/')], "/")
	conn, ok := b[service]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown service %s; known: %s", service, strings.Join(b.Services(), ", "))
	}
	ctx := in.Context()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		for _, h := range hopHeaders {
			md.Delete(h)
		}
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kind := streaming(service, method[len(service)+2:])
	out, err := conn.NewStream(ctx, kind, method, grpc.ForceCodecV2(codec{encoding.GetCodecV2("proto")}))
	if err != nil {
		return err
	}
	if kind.ClientStreams {
		err = both(in, out, kind, cancel)
	} else {
		err = one(in, out, kind)
	}
	in.SetTrailer(out.Trailer())
	return err
}

// streaming returns which sides of a method send many messages. For an unknown method, both may.
func streaming(service, method string) *grpc.StreamDesc {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service).Append(protoreflect.Name(method)))
	m, ok := found.(protoreflect.MethodDescriptor)
	if err != nil || !ok {
		return &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	}
	return &grpc.StreamDesc{ClientStreams: m.IsStreamingClient(), ServerStreams: m.IsStreamingServer()}
}

// one forwards a call whose caller sends one message. It uses the call's own goroutine, and sends the message together
// with the end of the stream.
func one(in grpc.ServerStream, out grpc.ClientStream, kind *grpc.StreamDesc) error {
	_, err := pass(in, out)
	if err != nil {
		return err
	}
	return back(out, in, kind)
}

// back forwards the backend's messages until the backend ends the call.
func back(out grpc.ClientStream, in grpc.ServerStream, kind *grpc.StreamDesc) error {
	if kind.ServerStreams {
		return drain(out, in)
	}
	answer := &frame{}
	err := out.RecvMsg(answer)
	if header, headerErr := out.Header(); headerErr == nil {
		err = cmp.Or(err, in.SetHeader(header))
	}
	if err != nil {
		return err
	}
	return in.SendMsg(answer)
}

// both forwards a call whose caller sends a stream.
func both(in grpc.ServerStream, out grpc.ClientStream, kind *grpc.StreamDesc, cancel func()) error {
	sent := make(chan error, 1)
	go func() {
		err := pump(in, out)
		sent <- err
		if err != nil {
			cancel() // The backend would wait for more messages.
		}
	}()
	err := back(out, in, kind)
	// If the backend has ended the call with OK, the caller may still send messages that nothing reads. Its context
	// ends with this call, and so does pump.
	select {
	case pumpErr := <-sent:
		return cmp.Or(pumpErr, err)
	default:
		return err
	}
}

// pump forwards the caller's messages until the caller has no more.
func pump(in grpc.ServerStream, out grpc.ClientStream) error {
	for more := true; more; {
		var err error
		if more, err = pass(in, out); err != nil {
			return err
		}
	}
	return nil
}

// pass forwards one message of the caller, or the end of its stream. It returns false when the backend wants no further
// message.
func pass(in grpc.ServerStream, out grpc.ClientStream) (more bool, err error) {
	f := &frame{}
	if err := in.RecvMsg(f); err != nil {
		if errors.Is(err, io.EOF) {
			return false, out.CloseSend()
		}
		return false, err
	}
	if f.data.Len() > bound.MessageBytes {
		return false, rpcerr.RequestTooLarge("", bound.MessageBytes,
			"the message has %d bytes, more than %d; send large bodies through BlobService or UploadFile, in chunks", f.data.Len(), bound.MessageBytes)
	}
	return out.SendMsg(f) == nil, nil // if it cannot be sent, the backend has ended; drain returns its status
}

// drain forwards the backend's headers and messages until the backend ends the call.
func drain(out grpc.ClientStream, in grpc.ServerStream) error {
	header, err := out.Header()
	if err != nil {
		return err
	}
	if err := in.SetHeader(header); err != nil {
		return err
	}
	for {
		f := &frame{}
		if err := out.RecvMsg(f); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := in.SendMsg(f); err != nil {
			return err
		}
	}
}
