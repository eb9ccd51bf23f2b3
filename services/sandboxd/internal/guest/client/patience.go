package client

import (
	"context"
	"errors"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evalfleet/evalfleet/pkg/bound"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// A guest shares its sandbox with a tenant who may stall it. So every wait for the guest has a bound.

// errSilent is the cause of the cancellation of a call that was not answered in time.
var errSilent = errors.New("no answer")

// patience returns how long an answer may take; 0 means without bound.
func patience(req any) time.Duration {
	switch r := req.(type) {
	case *guestv1.RunRequest:
		if limit := r.GetSpec().GetTimeout(); limit != nil {
			return min(limit.AsDuration(), math.MaxInt64-bound.GuestAnswer) + bound.GuestAnswer
		}
		return 0
	case *guestv1.RemoveFileRequest, *guestv1.WriteInputRequest:
		return bound.GuestWork
	}
	return bound.GuestAnswer
}

// answered bounds a call that has one answer.
func (c *Client) answered(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	limit := patience(req)
	if limit == 0 {
		return invoke(ctx, method, req, reply, conn, options...)
	}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, errSilent)
	defer cancel()
	return c.explain(bounded, limit, invoke(bounded, method, req, reply, conn, options...))
}

// followed bounds the wait for each message of a stream. A stream without news sends heartbeats.
func (c *Client) followed(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := open(ctx, desc, conn, method, options...)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &followed{ClientStream: stream, client: c, ctx: ctx, cancel: cancel, once: !desc.ServerStreams}, nil
}

// followed is a stream whose every step is bounded.
type followed struct {
	grpc.ClientStream

	client *Client
	ctx    context.Context //nolint:containedctx // The stream's own, to ask why it ended.
	cancel context.CancelCauseFunc
	once   bool // there is one answer
}

// SendMsg implements [grpc.ClientStream].
func (f *followed) SendMsg(m any) error {
	late := time.AfterFunc(bound.GuestAnswer, func() { f.cancel(errSilent) })
	defer late.Stop()
	return f.client.explain(f.ctx, bound.GuestAnswer, f.ClientStream.SendMsg(m))
}

// RecvMsg implements [grpc.ClientStream].
func (f *followed) RecvMsg(m any) error {
	late := time.AfterFunc(bound.GuestAnswer, func() { f.cancel(errSilent) })
	defer late.Stop()
	err := f.client.explain(f.ctx, bound.GuestAnswer, f.ClientStream.RecvMsg(m))
	if err != nil || f.once {
		f.cancel(nil)
	}
	return err
}

// explain adds to the error of a call whether it failed for lack of an answer.
func (c *Client) explain(ctx context.Context, limit time.Duration, err error) error {
	if deadline, ok := ctx.Deadline(); ok && status.Code(err) == codes.DeadlineExceeded && !deadline.After(time.Now()) {
		<-ctx.Done() // The transport has seen the deadline, and the context is about to.
	}
	if err == nil || !errors.Is(context.Cause(ctx), errSilent) {
		return err
	}
	return rpcerr.DeadlineExceeded("the program that serves %s from within did not answer in %s; it may be out of memory or processes", c.cfg.Sandbox, limit)
}
