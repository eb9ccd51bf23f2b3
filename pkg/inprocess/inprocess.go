// Package inprocess connects gRPC clients and a gRPC server of one process by byte streams in memory. HTTP/2, its flow
// control and its bounds are the same as over the network.
package inprocess

import (
	"context"
	"net"

	"google.golang.org/grpc/test/bufconn"
)

// Listener is where a server is found by clients in its process. It is safe for concurrent use.
type Listener struct{ *bufconn.Listener }

// streamBytes is how much of a stream is in memory, in each direction, before its writer waits.
const streamBytes = 64 << 10

// Listen makes a listener.
func Listen() *Listener { return &Listener{bufconn.Listen(streamBytes)} }

// Dial connects to the server that accepts next, whatever the address. It waits until ctx ends, and fails once the
// listener is closed.
func (l *Listener) Dial(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
