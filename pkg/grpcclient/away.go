package grpcclient

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// Away reports whether nobody answers at the other end of a connection now, so that calls wait. A connection that nobody uses, which
// knows nothing, is made for that: the answer is then found the next time. Connections that New did not make are never away.
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
