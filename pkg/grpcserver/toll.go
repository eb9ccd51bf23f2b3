package grpcserver

import (
	"context"
	"net"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/status"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/connlimit"
)

// The weights of work for a caller without a credential, see [bound.StrangerWork].
const (
	frameWork  = 1
	callWork   = 10
	answerWork = 100 // of reflection, which has the server encode all descriptors of a file
)

// toll bounds the work for one connection of a stranger. Each connection has a share of its own, so that a health check
// need not wait while others flood the server; further work is taken from the shared rate. At most one piece of work of
// a connection waits for the shared rate at a time, so that connections take turns.
type toll struct {
	own    *rate.Limiter
	first  turn // among the pieces of this connection
	shared *sharedWork
}

// sharedWork is shared by the connections of a server.
type sharedWork struct {
	rate *rate.Limiter
	// next is held by the one piece that takes from rate. Waiting pieces are served in the order of arrival, and have
	// taken nothing when they are abandoned.
	next turn
}

// turn is a mutex that can be waited for beside other things.
type turn chan struct{}

func newSharedWork() *sharedWork {
	return &sharedWork{rate: rate.NewLimiter(bound.StrangerWork, bound.StrangerWork/10), next: make(turn, 1)}
}

func newToll(shared *sharedWork) toll {
	own := rate.NewLimiter(bound.StrangerOwnWork, bound.StrangerOwnBurst)
	return toll{own: own, first: make(turn, 1), shared: shared}
}

// pay waits until the server may do work for the connection. If ctx ends or the connection is closed, pay fails and the
// work does not count.
func (m *meter) pay(ctx context.Context, work int) error {
	if m.known.Load() || m.toll.own.AllowN(time.Now(), work) {
		return nil
	}
	for _, t := range []turn{m.toll.first, m.toll.shared.next} {
		select {
		case t <- struct{}{}:
			defer func() { <-t }()
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-m.closed:
			return net.ErrClosed
		case <-connlimit.Closed(m.Conn):
			return net.ErrClosed
		}
	}
	now := time.Now()
	taken := m.toll.shared.rate.ReserveN(now, work)
	ready := time.NewTimer(taken.DelayFrom(now))
	defer ready.Stop()
	select {
	case <-ready.C:
		return nil
	case <-ctx.Done():
		taken.Cancel()
		return status.FromContextError(ctx.Err()).Err()
	case <-m.closed:
	case <-connlimit.Closed(m.Conn):
	}
	taken.Cancel()
	return net.ErrClosed
}
