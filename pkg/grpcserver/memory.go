package grpcserver

import (
	"context"
	"net"

	"google.golang.org/grpc/test/bufconn"
)

// Memory is a listener whose connections never leave the process. It satisfies grpcclient's Dialer.
type Memory struct{ *bufconn.Listener }

// ListenMemory makes a listener in memory.
func ListenMemory() Memory { return Memory{bufconn.Listen(256 << 10)} }

// Dial opens a connection to whoever serves the listener.
func (m Memory) Dial(ctx context.Context, _ string) (net.Conn, error) {
	return m.Listener.DialContext(ctx)
}
