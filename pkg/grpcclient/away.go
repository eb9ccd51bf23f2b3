package grpcclient

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// Away reports whether the server of a connection is unreachable, so that calls wait. If the connection is idle, Away
// makes it connect, and a later call returns the result. Connections that New did not make are never away.
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

// Watch reports whether the server of a connection is unreachable, at first and on each change, until ctx ends. It
// keeps the connection established. For connections that New did not make it reports nothing, since they are never
// away.
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
