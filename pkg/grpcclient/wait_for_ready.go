package grpcclient

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Patience is how long a client waits for a service behind the one it called: longer than a restart, but short enough
// that the caller is notified of a longer outage.
const Patience = 10 * time.Second

// againIn is the retry delay for a client whose call failed because a service is unreachable.
const againIn = time.Second

// WaitForReady returns conn for the calls of clients: a call, and the opening of a stream, waits for an unreachable
// service for at most wait, or three quarters of the time to the caller's own deadline, and then fails with UNAVAILABLE
// (SERVICE_UNAVAILABLE). Background work, which may wait indefinitely, uses conn itself. Connections that New did not
// make are never away, and are returned unchanged.
func WaitForReady(conn grpc.ClientConnInterface, service string, wait time.Duration) grpc.ClientConnInterface {
	c, ok := conn.(*grpc.ClientConn)
	if !ok {
		return conn
	}
	return &waitingConn{conn: c, service: service, wait: wait}
}

type waitingConn struct {
	conn    *grpc.ClientConn
	service string
	wait    time.Duration
}

// Invoke implements [grpc.ClientConnInterface].
func (p *waitingConn) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	if err := p.waitUntilReady(ctx); err != nil {
		return err
	}
	return p.explain(p.conn.Invoke(ctx, method, request, reply, now(options)...))
}

// NewStream implements [grpc.ClientConnInterface].
func (p *waitingConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := p.waitUntilReady(ctx); err != nil {
		return nil, err
	}
	s, err := p.conn.NewStream(ctx, desc, method, now(options)...)
	return s, p.explain(err)
}

// now makes a call not wait a second time if the service has become unreachable in between.
func now(options []grpc.CallOption) []grpc.CallOption {
	return append(slices.Clip(options), grpc.WaitForReady(false))
}

// waitUntilReady returns when the service is reachable.
func (p *waitingConn) waitUntilReady(ctx context.Context) error {
	if p.conn.GetState() == connectivity.Ready {
		return nil
	}
	wait := p.wait
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)*3/4) // The answer should be there before the caller has gone.
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		state := p.conn.GetState()
		switch state { //nolint:exhaustive // In the others something is being done about it.
		case connectivity.Ready, connectivity.Shutdown: // The call itself fails if the connection was closed.
			return nil
		case connectivity.Idle:
			p.conn.Connect()
		}
		if p.conn.WaitForStateChange(within, state) {
			continue
		}
		if err := ctx.Err(); errors.Is(err, context.Canceled) {
			return rpcerr.FromStatus(status.FromContextError(err).Err())
		}
		return p.away("has not answered for %s", wait.Round(time.Millisecond))
	}
}

// explain gives an error of the transport the words that a client can use. Those of the service itself stay.
func (p *waitingConn) explain(err error) error {
	if rpcerr.Code(err) != codes.Unavailable || rpcerr.Reason(err) != errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return err
	}
	return p.away("has gone during the call (%w)", err)
}

func (p *waitingConn) away(format string, args ...any) error {
	args = append([]any{p.service, p.conn.Target()}, args...)
	args = append(args, strings.ToUpper(p.service))
	return rpcerr.ServiceUnavailable(p.service, againIn, "%s at %s "+format+"; see that it runs there and that EVALFLEET_%s_ADDRESS names the place, then try again", args...)
}
