// Package inprocess joins gRPC clients and a gRPC server of one process.
//
// Its one idea: between two parts of a process nothing of HTTP/2 is needed but its promises. A call is a goroutine for
// the handler and a queue of encoded messages in each direction. What callers and handlers see is what they would see
// over the network: messages pass through the codecs of both sides and share no memory; headers, trailers and the
// details of a status arrive; the caller's deadline and its leaving reach the handler, and none of the caller's context
// values or causes do; a side that reads nothing holds the other up; messages and headers have the bounds of the
// network's. Credentials, interceptors and whatever else makes a client or a server are left to pkg/grpcclient and
// pkg/grpcserver.
package inprocess

import (
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Listener is where a server is found: clients connect to it, and the server serves it. It is a listener without byte
// streams, so that a server takes it for one of its addresses. Calls that are made before it is served wait; once it is
// closed, as a server that ends closes it, those that no server has taken fail with UNAVAILABLE.
type Listener struct {
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	server  *Server       // the latest, which may take no more
	changed chan struct{} // closed when there is another server
}

// Listen makes a listener.
func Listen() *Listener {
	return &Listener{closed: make(chan struct{}), changed: make(chan struct{})}
}

// Accept implements [net.Listener]: no connection ever comes.
func (l *Listener) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

// Close implements [net.Listener].
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return address{} }

// set makes a server known.
func (l *Listener) set(s *Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = s
	close(l.changed)
	l.changed = make(chan struct{})
}

// latest returns the server that there is, or was, and what tells of the next.
func (l *Listener) latest() (s *Server, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server, l.changed
}

// await waits for a server that takes the call, as a connection waits for an address where somebody answers. Where the
// call ends before, or none will come, it returns false.
func (l *Listener) await(c *call) bool {
	for {
		s, changed := l.latest()
		if s != nil && s.begin(c) {
			return true
		}
		select {
		case <-changed:
			continue
		case <-l.closed:
			c.finish(status.New(codes.Unavailable, "nobody serves within the process any more"))
		case <-c.ctx.Done(): // with its caller's, or with the connection
			c.finish(status.FromContextError(c.ctx.Err()))
		}
		return false
	}
}

// address is that of everyone in the process.
type address struct{}

func (address) Network() string { return "inprocess" }

func (address) String() string { return "inprocess" }
