// Package grpcclient makes the connections from one service to another, over the network or within a process.
package grpcclient

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// maxMessageBytes is what the transport lets through, over every bound that a server keeps: its refusal names the
// bound.
const maxMessageBytes = 80 << 20

// Bytes that may be under way unread on one stream, and on one connection; fixed for the reason that pkg/grpcserver
// gives.
const (
	streamWindow     = 1 << 20
	connectionWindow = 4 << 20
)

// redial is how a service that is away is dialled: what waits for it should go on soon after it has come back.
var redial = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second}

// serviceConfig retries what is safe to retry: a call that no server has seen. Whatever else is tried again is the
// caller's to decide, by key.
const serviceConfig = `{"methodConfig": [{"name": [{}], "waitForReady": true}]}`

// Options sets a connection up.
type Options struct {
	// Token is sent with every call; zero sends none.
	Token config.Secret
	// TLS secures the connection; nil sends plain text, which is right on loopback only.
	TLS credentials.TransportCredentials
	// FailFast makes a call fail at once when nobody answers at the address; default is to wait for the call's
	// deadline. It holds for calls over the network.
	FailFast bool
	// Unary is called around each unary call, outside the turning back of errors, within a process without a
	// connection; nil adds nothing.
	Unary grpc.UnaryClientInterceptor
}

// Conn is a connection over the network or within the process.
type Conn interface {
	grpc.ClientConnInterface
	io.Closer
}

// New makes a connection. It dials when it is first used; Close ends it. Errors of its calls are turned back into the
// kinds of pkg/rpcerr.
func New(address string, o Options) (*grpc.ClientConn, error) {
	unary := []grpc.UnaryClientInterceptor{unaryErrors}
	if o.Unary != nil {
		unary = []grpc.UnaryClientInterceptor{o.Unary, unaryErrors}
	}
	options := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		grpc.WithMaxHeaderListSize(inprocess.MaxHeaderBytes),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: redial.MaxDelay}),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connectionWindow),
		grpc.WithChainUnaryInterceptor(unary...),
		grpc.WithChainStreamInterceptor(streamErrors),
	}
	if !o.FailFast {
		options = append(options, grpc.WithDefaultServiceConfig(serviceConfig))
	}
	if o.TLS != nil {
		options = append(options, grpc.WithTransportCredentials(o.TLS))
	} else {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	if !o.Token.IsZero() {
		options = append(options, grpc.WithPerRPCCredentials(bearer{token: o.Token, secure: o.TLS != nil}))
	}
	return grpc.NewClient(address, options...)
}

// Within makes a connection to whoever serves l in this process. Of the options, those that say how to reach a server,
// TLS and FailFast, have no meaning: a call that is made before somebody serves l waits, without a deadline for as long
// as it takes, and once l is closed it fails with UNAVAILABLE.
func Within(l *inprocess.Listener, o Options) Conn {
	c := &within{Conn: l.Dial(maxMessageBytes), unary: o.Unary}
	if !o.Token.IsZero() {
		c.credential = "Bearer " + o.Token.Reveal()
	}
	return c
}

// within does for calls within the process what the options of New do for others.
type within struct {
	*inprocess.Conn
	credential string
	unary      grpc.UnaryClientInterceptor
}

func (w *within) authorized(ctx context.Context) context.Context {
	if w.credential == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", w.credential)
}

// Invoke implements [grpc.ClientConnInterface].
func (w *within) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	call := func(ctx context.Context, method string, request, reply any, _ *grpc.ClientConn, options ...grpc.CallOption) error {
		return rpcerr.FromStatus(w.Conn.Invoke(w.authorized(ctx), method, request, reply, options...))
	}
	if w.unary == nil {
		return call(ctx, method, request, reply, nil, options...)
	}
	return w.unary(ctx, method, request, reply, nil, call, options...)
}

// NewStream implements [grpc.ClientConnInterface].
func (w *within) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := w.Conn.NewStream(w.authorized(ctx), desc, method, options...)
	if err != nil {
		return nil, rpcerr.FromStatus(err)
	}
	return &errorStream{s}, nil
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
	return rpcerr.FromStatus(invoker(ctx, method, req, reply, cc, opts...))
}

func streamErrors(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, rpcerr.FromStatus(err)
	}
	return &errorStream{s}, nil
}

// errorStream turns a stream's errors back into kinds; io.EOF stays.
type errorStream struct{ grpc.ClientStream }

func (s *errorStream) RecvMsg(m any) error { return rpcerr.FromStatus(s.ClientStream.RecvMsg(m)) }
