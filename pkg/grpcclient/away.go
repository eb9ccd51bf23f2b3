package grpcclient

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// Away reports whether nobody answers at the other end of a connection now, so that calls wait. A connection that
// nobody uses, which knows nothing, is made for that: the answer is then found the next time. Connections that New did
// not make are never away.
func Away(conn grpc.ClientConnInterface) bool {
	c, ok := conn.(*grpc.ClientConn)
	if !ok {
		return false
	}
	state := c.GetState()
	if state == connectivity.Idle {
		c.Connect()
	}
	return state == connectivity.TransientFailure
}

// Watch reports whether nobody answers at the other end of a connection, at first and whenever that changes, until ctx
// ends. It keeps the connection made. Connections that New did not make never are away, and nothing is told of them.
func Watch(ctx context.Context, conn grpc.ClientConnInterface, tell func(away bool)) {
	c, ok := conn.(*grpc.ClientConn)
	if !ok {
		return
	}
	for more := true; more; {
		state := c.GetState()
		switch state { //nolint:exhaustive // In the others it is not known.
		case connectivity.Idle:
			c.Connect()
		case connectivity.Ready:
			tell(false)
		case connectivity.TransientFailure:
			tell(true)
		case connectivity.Shutdown:
			return
		}
		more = c.WaitForStateChange(ctx, state)
	}
}
