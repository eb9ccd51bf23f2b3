// Package grpcclient makes the connections from one service to another, over the network or within a process.
package grpcclient

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// maxMessageBytes is the transport's limit. It exceeds the bound of a server, so that the server refuses the message
// with an error that names the bound.
const maxMessageBytes = bound.MessageBytes + 16<<20

// Flow-control windows of one stream, and of one connection, in bytes; fixed for the reason in pkg/grpcserver.
const (
	streamWindow     = 1 << 20
	connectionWindow = 4 << 20
)

// redial is the backoff for an unreachable service: calls that wait for it should resume soon after its return.
var redial = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second}

// serviceConfig retries calls that no server has seen, which is safe. All other retries are up to the caller, by key.
const serviceConfig = `{"methodConfig": [{"name": [{}], "waitForReady": true}]}`

// Options sets a connection up.
type Options struct {
	// Token is sent with every call; zero sends none.
	Token config.Secret
	// TLS secures the connection; nil sends plain text, which is right on loopback only, and passes no proxy of the
	// environment.
	TLS credentials.TransportCredentials
	// FailFast makes a call fail at once if the address is unreachable; the default is to wait until the call's
	// deadline.
	FailFast bool
	// Unary wraps each unary call, outside the conversion of errors; nil adds nothing.
	Unary grpc.UnaryClientInterceptor
	// Blobs stores the values of messages that are offloaded (pkg/offload): requests put them there, responses take
	// them from there. Nil leaves messages unchanged.
	Blobs offload.Store
}

// Conn is a connection over the network or within the process.
type Conn interface {
	grpc.ClientConnInterface
	io.Closer
}

// New makes a connection. It connects on first use; Close ends it. Errors of its calls are converted back into the
// kinds of pkg/rpcerr.
func New(address string, o Options) (*grpc.ClientConn, error) { return dial(address, o) }

// dial makes the connections of New and of Within, which differ in options alone.
func dial(address string, o Options, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	var unary []grpc.UnaryClientInterceptor
	var streams []grpc.StreamClientInterceptor
	if o.Blobs != nil {
		unary = append(unary, offloading(o.Blobs))
		streams = append(streams, func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := streamer(ctx, desc, cc, method, opts...)
			if err != nil {
				return nil, err
			}
			return &offloadingStream{ClientStream: s, store: o.Blobs}, nil
		})
	}
	if o.Unary != nil {
		unary = append(unary, o.Unary)
	}
	options = append(options,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		grpc.WithMaxHeaderListSize(bound.RequestHeaderBytes),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: redial.MaxDelay}),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connectionWindow),
		grpc.WithChainUnaryInterceptor(append(unary, unaryErrors)...),
		grpc.WithChainStreamInterceptor(append(streams, streamErrors)...),
	)
	if !o.FailFast {
		options = append(options, grpc.WithDefaultServiceConfig(serviceConfig))
	}
	if o.TLS != nil {
		options = append(options, grpc.WithTransportCredentials(o.TLS))
	} else {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	}
	if !o.Token.IsZero() {
		options = append(options, grpc.WithPerRPCCredentials(bearer{token: o.Token, secure: o.TLS != nil}))
	}
	return grpc.NewClient(address, options...)
}

// Within makes a connection to the server of this process that serves l. TLS has no meaning there.
func Within(l *inprocess.Listener, o Options) (*grpc.ClientConn, error) {
	o.TLS = nil
	return dial("passthrough:///"+l.Addr().String(), o, grpc.WithContextDialer(l.Dial))
}

type bearer struct {
	token  config.Secret
	secure bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token.Reveal()}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.secure }

func unaryErrors(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, end := telemetry.CallGRPC(ctx, method)
	err := rpcerr.FromStatus(invoker(ctx, method, req, reply, cc, opts...))
	if end != nil {
		end(rpcerr.Code(err))
	}
	return err
}

func streamErrors(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, end := telemetry.CallGRPC(ctx, method)
	s, err := streamer(ctx, desc, cc, method, opts...)
	switch {
	case err != nil && end != nil:
		end(rpcerr.Code(rpcerr.FromStatus(err)))
		return nil, rpcerr.FromStatus(err)
	case err != nil:
		return nil, rpcerr.FromStatus(err)
	case end == nil:
		return &errorStream{ClientStream: s}, nil
	}
	return newTracedStream(ctx, &errorStream{s}, desc, end), nil
}

// errorStream turns a stream's errors back into kinds; io.EOF stays.
type errorStream struct{ grpc.ClientStream }

func (s *errorStream) RecvMsg(m any) error { return rpcerr.FromStatus(s.ClientStream.RecvMsg(m)) }

// tracedStream ends its span when the stream has ended, or its caller has left.
type tracedStream struct {
	grpc.ClientStream
	single bool // one message is the whole answer
	end    func(codes.Code)
	forget func() bool
}

func newTracedStream(ctx context.Context, s grpc.ClientStream, desc *grpc.StreamDesc, end func(codes.Code)) *tracedStream {
	var once sync.Once
	t := &tracedStream{ClientStream: s, single: !desc.ServerStreams, end: func(code codes.Code) { once.Do(func() { end(code) }) }}
	t.forget = context.AfterFunc(ctx, func() { t.end(rpcerr.Code(ctx.Err())) })
	return t
}

// RecvMsg implements [grpc.ClientStream].
func (s *tracedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case errors.Is(err, io.EOF), err == nil && s.single:
		s.forget()
		s.end(codes.OK)
	case err != nil:
		s.forget()
		s.end(rpcerr.Code(err))
	}
	return err
}
