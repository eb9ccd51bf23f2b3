package grpcserver

import (
	"net"
	"time"

	"golang.org/x/time/rate"

	"github.com/evalfleet/evalfleet/pkg/accept"
	"github.com/evalfleet/evalfleet/pkg/bound"
)

// What the work for a caller without a credential counts, see [bound.StrangerWork].
const (
	frameWork  = 1
	callWork   = 10
	answerWork = 100 // of reflection, which has the server encode all descriptors of a file
)

// toll bounds the work for one connection of a stranger. Each connection has some work of its own, so that a health
// check need not wait while others flood the server; beyond that it takes from what all of them share. It asks for one
// piece at a time, so that connections take turns and none waits for longer than one piece of each other takes.
type toll struct {
	own, shared *rate.Limiter
}

// strangersWork is what the connections of a server share.
func strangersWork() *rate.Limiter { return rate.NewLimiter(bound.StrangerWork, bound.StrangerWork/10) }

func newToll(shared *rate.Limiter) toll {
	return toll{own: rate.NewLimiter(bound.StrangerOwnWork, bound.StrangerOwnBurst), shared: shared}
}

// pay waits until the server may do work for the connection.
func (m *meter) pay(work int) error {
	now := time.Now()
	if m.known.Load() || m.toll.own.AllowN(now, work) {
		return nil
	}
	turn := time.NewTimer(m.toll.shared.ReserveN(now, work).DelayFrom(now))
	defer turn.Stop()
	select {
	case <-turn.C:
		return nil
	case <-m.closed:
		return net.ErrClosed
	case <-accept.Closed(m.Conn):
		return net.ErrClosed
	}
}
