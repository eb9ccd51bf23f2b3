package grpcserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// requestIDHeader carries the id under which a call stands in the logs of every service it passes.
const requestIDHeader = "x-request-id"

// open are services that need no credential: they tell nothing about runs.
var open = []string{"/grpc.health.v1.Health/", "/grpc.reflection."}

// chain is all interceptors in their order, written out once for unary calls and once for streams.
type chain struct {
	log       *slog.Logger
	auth      auth.Authenticator
	metrics   *telemetry.CallMetrics
	validator protovalidate.Validator
	// requestBytes bounds each message of a request.
	requestBytes int
}

func (c chain) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	end := c.begin(ctx, info.FullMethod)
	defer func() { err = end(ctx, err, recover()) }()
	if ctx, err = c.admit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	if err := c.validate(req); err != nil {
		return nil, err
	}
	resp, err = handler(ctx, req)
	return resp, cmp.Or(err, checkAnswer(resp))
}

func (c chain) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := ss.Context()
	end := c.begin(ctx, info.FullMethod)
	defer func() { err = end(ctx, err, recover()) }()
	if ctx, err = c.admit(ctx, info.FullMethod); err != nil {
		return err
	}
	return handler(srv, &checkedStream{ServerStream: ss, ctx: ctx, chain: c})
}

// begin opens a call. The returned function closes it, with the context as it became: it turns a panic into INTERNAL, logs and counts the final code, and writes the status.
func (c chain) begin(ctx context.Context, method string) func(context.Context, error, any) error {
	start := time.Now()
	id := requestID(ctx)
	count := c.metrics.Begin(method)
	return func(ctx context.Context, err error, panicked any) error {
		if panicked != nil {
			c.log.Error("panic", "method", method, "request_id", id, "panic", panicked, "stack", string(debug.Stack()))
			err = rpcerr.Hidden(id)
		}
		s := rpcerr.ToStatusUnder(err, id)
		took := time.Since(start)
		count(took.Seconds(), s.Code().String())
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

func requestID(ctx context.Context) string {
	if got := metadata.ValueFromIncomingContext(ctx, requestIDHeader); len(got) == 1 && len(got[0]) > 0 && len(got[0]) <= 64 {
		return got[0]
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // Never fails.
	return hex.EncodeToString(b[:])
}

func (c chain) admit(ctx context.Context, method string) (context.Context, error) {
	for _, prefix := range open {
		if strings.HasPrefix(method, prefix) {
			return ctx, nil
		}
	}
	token := ""
	if got := metadata.ValueFromIncomingContext(ctx, "authorization"); len(got) == 1 {
		token = auth.Bearer(got[0])
	}
	p, err := c.auth.Authenticate(ctx, token)
	if err != nil {
		return ctx, err
	}
	return auth.WithPrincipal(ctx, p), nil
}

// validate checks the rules of the request's schema and names every field that breaks one.
func (c chain) validate(req any) error {
	m, ok := req.(proto.Message)
	if !ok {
		return nil
	}
	if err := CheckRequest(m, c.requestBytes); err != nil {
		return err
	}
	err := c.validator.Validate(m)
	if err == nil {
		return nil
	}
	faults, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok {
		return rpcerr.Internal("cannot check the request: %w", err)
	}
	e := rpcerr.InvalidRequest("")
	said := make([]string, 0, len(faults.Violations))
	for _, v := range faults.Violations {
		path := protovalidate.FieldPathString(v.Proto.GetField())
		e.Fields = append(e.Fields, rpcerr.Field{Path: path, Description: v.Proto.GetMessage()})
		said = append(said, strings.TrimPrefix(path+": "+v.Proto.GetMessage(), ": "))
	}
	e.Message = strings.Join(said, "; ")
	return e
}

// CheckRequest refuses a message of a request that has more bytes than it may have.
func CheckRequest(m proto.Message, maxBytes int) error {
	if size := proto.Size(m); size > maxBytes {
		return rpcerr.RequestTooLarge("", maxBytes, "the request has %d bytes and may have %d; send large content as a blob and name it by its hash", size, maxBytes)
	}
	return nil
}

// checkAnswer refuses an answer that the transport would not send, whose own error tells less.
func checkAnswer(answer any) error {
	m, ok := answer.(proto.Message)
	if !ok {
		return nil
	}
	if size := proto.Size(m); size > MaxPeerBytes {
		return rpcerr.BodyTooLarge(MaxPeerBytes, "the answer has %d bytes and may have %d; ask for less of it", size, MaxPeerBytes)
	}
	return nil
}

// checkedStream validates what is received and carries the admitted context.
type checkedStream struct {
	grpc.ServerStream
	ctx   context.Context
	chain chain
}

func (s *checkedStream) Context() context.Context { return s.ctx }

func (s *checkedStream) SendMsg(m any) error {
	if err := checkAnswer(m); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (s *checkedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.chain.validate(m)
}
