package grpcserver

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/connlimit"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/rules"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// requestIDHeader carries the id of a call in the logs of every service that handles it.
const requestIDHeader = "x-request-id"

// open are services that need no credential: they disclose nothing about runs.
var open = []string{"/grpc.health.v1.Health/", reflectionPrefix}

// reflectionPrefix is the prefix of the methods of reflection.
const reflectionPrefix = "/grpc.reflection."

// chain is all interceptors in their order, written out once for unary calls and once for streams.
type chain struct {
	log     *slog.Logger
	auth    auth.Authenticator
	metrics *telemetry.CallMetrics
	traces  *telemetry.Traces
	// stopping ends when the server's end begins, and with it every call that waits.
	stopping context.Context //nolint:containedctx // The life of the server.
	// blobs stores the offloaded values of messages.
	blobs offload.Store
	// room bounds the offloaded values that calls hold. Service is the service's name in errors.
	room    *offload.Room
	service string
	// known are the registered methods, and plain those of them that have one request, one answer and a credential, and
	// do not wait. Included are those of other servers of the process. They are complete before the first call.
	known, plain, included map[string]bool
	// unauthenticatedCalls are the calls without a credential.
	strangers unauthenticatedCalls
}

// checked calls a handler, whose request and answer it checks.
func (c *chain) checked(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	request, _ := req.(proto.Message)
	ctx, share := c.hold(ctx)
	defer share.Close()
	if err := c.accept(ctx, request, request); err != nil {
		return nil, err
	}
	resp, err := handler(ctx, req)
	if err != nil {
		return resp, err
	}
	return c.offer(ctx, request, resp)
}

// accept restores the offloaded values of a call's message and validates it. First is the first message, which names
// the project of the call.
func (c *chain) accept(ctx context.Context, first, m proto.Message) error {
	if m == nil {
		return nil
	}
	if err := CheckRequest(m); err != nil {
		return err
	}
	if c.blobs != nil {
		if err := offload.TakeRequest(ctx, c.blobs, offload.Project(first), m, bound.OffloadedBytes); err != nil {
			return err
		}
	}
	return validate(m)
}

// hold returns the share of a call, and the context in which its messages count for it. A server that forwards messages
// holds nothing: its share is nil.
func (c *chain) hold(ctx context.Context) (context.Context, *offload.Share) {
	if c.blobs == nil {
		return ctx, nil
	}
	share := c.room.Share(c.service)
	return offload.WithShare(ctx, share), share
}

// offer returns an answer that fits into a message.
func (c *chain) offer(ctx context.Context, first proto.Message, answer any) (any, error) {
	m, ok := answer.(proto.Message)
	if !ok {
		return answer, nil
	}
	if c.blobs != nil {
		var err error
		if m, err = offload.Put(ctx, c.blobs, offload.Project(first), m, offload.Limits{Message: bound.MessageBytes}); err != nil {
			return nil, err
		}
	}
	if size := proto.Size(m); size > bound.MessageBytes {
		return nil, rpcerr.BodyTooLarge(bound.MessageBytes, "the answer has %d bytes and may have %d; ask for less of it", size, bound.MessageBytes)
	}
	return m, nil
}

// guarded returns desc with its unary methods as streams, so that the chain runs before their request is read: gRPC
// runs interceptors of unary methods after that.
func (c *chain) guarded(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	all := *desc
	all.Methods, all.Streams = nil, slices.Clone(desc.Streams)
	for _, m := range desc.Methods {
		all.Streams = append(all.Streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: c.one("/"+desc.ServiceName+"/"+m.MethodName, m.Handler)})
	}
	return &all
}

// know takes note of a service's methods.
func (c *chain) know(desc *grpc.ServiceDesc) {
	for _, m := range desc.Methods {
		method := "/" + desc.ServiceName + "/" + m.MethodName
		c.known[method], c.plain[method] = true, !isOpen(method) && !Waits(method)
	}
	for _, m := range desc.Streams {
		c.known["/"+desc.ServiceName+"/"+m.StreamName] = true
	}
}

// including returns desc with handlers that run this chain without its checks of messages, and then the other chain,
// whose status it turns back into the error, as a client does: this chain hides errors that it does not know.
func (c *chain) including(other *chain, desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	all := other.guarded(desc)
	for i := range all.Streams {
		m := &all.Streams[i]
		info := &grpc.StreamServerInfo{FullMethod: "/" + desc.ServiceName + "/" + m.StreamName, IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams}
		c.included[info.FullMethod] = true
		handler := m.Handler
		if m.ClientStreams || m.ServerStreams { // c.stream runs before, as for all streams of the server.
			m.Handler = func(srv any, ss grpc.ServerStream) error {
				return rpcerr.FromStatus(other.stream(srv, ss, info, handler))
			}
			continue
		}
		served := func(srv any, ss grpc.ServerStream) error { return rpcerr.FromStatus(handler(srv, ss)) }
		m.Handler = func(srv any, ss grpc.ServerStream) error { return c.stream(srv, ss, info, served) }
	}
	return all
}

// one serves a method with one request and one answer. The call is counted before the answer is sent, so that a client
// that has the answer finds it counted.
func (c *chain) one(method string, handler grpc.MethodHandler) grpc.StreamHandler {
	return func(srv any, ss grpc.ServerStream) error {
		answer, err := c.answer(method, srv, ss, handler)
		if err != nil {
			return err
		}
		return ss.SendMsg(answer)
	}
}

// answer returns a method's answer to the one request of ss.
func (c *chain) answer(method string, srv any, ss grpc.ServerStream, handler grpc.MethodHandler) (answer any, err error) {
	ctx := ss.Context()
	end := c.begin(ctx, method)
	defer func() { err = end(ctx, err, recover()) }()
	if ctx, err = c.admit(ctx, method); err != nil {
		return nil, err
	}
	serve := func(ss grpc.ServerStream) (err error) {
		answer, err = handler(srv, ctx, ss.RecvMsg, c.checked)
		return err
	}
	if auth.FromContext(ctx).Name == "" {
		err = c.strangers.serve(ctx, ss, serve)
	} else {
		err = serve(ss)
	}
	return answer, err
}

func (c *chain) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := ss.Context()
	end := c.begin(ctx, info.FullMethod)
	defer func() { err = end(ctx, err, recover()) }()
	if ctx, err = c.admit(ctx, info.FullMethod); err != nil {
		return err
	}
	if c.included[info.FullMethod] {
		return handler(srv, &admitted{ServerStream: ss, ctx: ctx})
	}
	ctx, share := c.hold(ctx)
	defer share.Close()
	serve := func(ss grpc.ServerStream) error {
		return handler(srv, &checkedStream{ServerStream: ss, chain: c, share: share})
	}
	ss = &admitted{ServerStream: ss, ctx: ctx}
	if auth.FromContext(ctx).Name == "" {
		return c.strangers.serve(ctx, ss, serve)
	}
	return serve(ss)
}

// begin opens a call, which a stop of the server ends if it only waits. The returned function closes it, with the
// context of its end: it turns a panic into INTERNAL, logs and counts the final code, and writes the status.
func (c *chain) begin(ctx context.Context, method string) func(context.Context, error, any) error {
	start := time.Now()
	id := requestID(ctx)
	count := c.metrics.Begin(c.label(method))
	m := metered(ctx)
	if m != nil {
		connlimit.CallBegan(m.Conn)
	}
	waited := sameError
	if Waits(method) {
		waited = UntilStopping(ctx, c.stopping, c.service, ender(ctx))
	}
	return func(ctx context.Context, err error, panicked any) error {
		if m != nil {
			defer connlimit.CallEnded(m.Conn)
		}
		err = waited(err)
		if panicked != nil {
			c.log.Error("panic", "method", method, "request_id", id, "panic", panicked, "stack", string(debug.Stack()))
			err = rpcerr.Hidden(id)
		}
		err = notBuilt(method, err)
		s := rpcerr.ToStatusUnder(err, id)
		took := time.Since(start)
		count(took.Seconds(), s.Code().String())
		telemetry.EndGRPC(ctx, s.Code(), id)
		level := slog.LevelDebug
		if s.Code() == codes.Internal || s.Code() == codes.Unknown || s.Code() == codes.DataLoss {
			level = slog.LevelError
		}
		if c.log.Enabled(ctx, level) {
			c.log.Log(ctx, level, "call", "method", method, "code", s.Code().String(), "took", took, "request_id", id, "principal", auth.FromContext(ctx).Name, "error", err)
		}
		return s.Err()
	}
}

// unknownMethod is the label of all methods that are not registered, whose names callers choose.
const unknownMethod = "unknown"

// label is the name of a method in metrics.
func (c *chain) label(method string) string {
	if c.known[method] || methodOf(method) != nil {
		return method
	}
	return unknownMethod
}

func requestID(ctx context.Context) string {
	if got := metadata.ValueFromIncomingContext(ctx, requestIDHeader); len(got) == 1 && len(got[0]) > 0 && len(got[0]) <= 64 {
		return got[0]
	}
	return resource.NewID()
}

// admit authenticates the caller, and begins the span of its call, which the end of the call ends. Without an accepted
// credential only the open services are served; the context then has no principal.
func (c *chain) admit(ctx context.Context, method string) (context.Context, error) {
	p, err := c.auth.Authenticate(ctx, token(metadata.ValueFromIncomingContext(ctx, "authorization")))
	if err == nil {
		if !isOpen(method) {
			ctx = c.traces.ServeGRPC(ctx, c.service, c.label(method))
		}
		return auth.WithPrincipal(ctx, p), nil
	}
	if isOpen(method) {
		return ctx, nil
	}
	return ctx, err
}

// isOpen reports whether a method needs no credential.
func isOpen(method string) bool {
	return slices.ContainsFunc(open, func(prefix string) bool { return strings.HasPrefix(method, prefix) })
}

// validate checks the rules of the request's schema and names every field that breaks one.
func validate(m proto.Message) error {
	if err := rules.Check(m); err != nil {
		return err
	}
	return checkAttribution(m)
}

// CheckRequest refuses a message of a request that has more bytes than it may have.
func CheckRequest(m proto.Message) error {
	if size := proto.Size(m); size > bound.MessageBytes {
		return rpcerr.RequestTooLarge("", bound.MessageBytes, "the request has %d bytes and may have %d; put large content into the project's blobs and name it in `offloaded`", size, bound.MessageBytes)
	}
	return nil
}

// admitted is a stream with the context of an admitted call.
type admitted struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // A stream has one.
}

func (s *admitted) Context() context.Context { return s.ctx }

// checkedStream validates received messages and bounds sent ones.
type checkedStream struct {
	grpc.ServerStream
	chain *chain
	first proto.Message  // that was received; nothing is sent before
	share *offload.Share // holds the message that was received last
}

func (s *checkedStream) SendMsg(m any) error {
	m, err := s.chain.offer(s.Context(), s.first, m)
	if err != nil {
		return err
	}
	end := ender(s.Context())
	unread := time.AfterFunc(bound.UnreadStream, func() { end(errUnread) })
	defer unread.Stop()
	err = s.ServerStream.SendMsg(m)
	if err != nil && errors.Is(context.Cause(s.Context()), errUnread) {
		return rpcerr.DeadlineExceeded("the client has not read the stream for %v; a watch is resumed from its cursor", bound.UnreadStream)
	}
	return err
}

func (s *checkedStream) RecvMsg(m any) error {
	s.share.Release() // Who asks for the next message is done with the last one.
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	message, _ := m.(proto.Message)
	if s.first == nil {
		s.first = message
	}
	return s.chain.accept(s.Context(), s.first, message)
}
