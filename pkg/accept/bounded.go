package accept

import (
	"cmp"
	"container/list"
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/bound"
)

// Limits bound the connections of a listener.
type Limits struct {
	// Connections is how many may be open at once. Strangers of them may be strangers'.
	Connections, Strangers int
}

// Room returns the limits for a process that should have as many connections; zero is bound.Connections. At most half
// of the files that the process may open become connections, and at most half of those strangers'.
func Room(connections int) Limits {
	connections = cmp.Or(connections, bound.Connections)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur < 2*uint64(connections) {
		connections = int(files.Cur / 2)
	}
	return Limits{Connections: connections, Strangers: min(bound.Strangers, connections/2)}
}

// Bounded returns l with the bounds of limits. When a stranger comes and there are as many as there may be, the
// stranger that came first is closed; likewise where all connections are taken. Where all are taken by known callers,
// the new connection is closed.
func Bounded(l net.Listener, limits Limits, log *slog.Logger) net.Listener {
	return &bounded{Listener: l, limits: limits, report: report{log: log}}
}

type bounded struct {
	net.Listener
	limits Limits
	report report

	mu        sync.Mutex
	open      int
	strangers list.List // of *conn, in the order in which they came
}

// Accept implements [net.Listener].
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := b.admit(c); admitted != nil {
			return admitted, nil
		}
	}
}

// admit makes room for a connection; without room it closes the connection and returns nil.
func (b *bounded) admit(c net.Conn) net.Conn {
	b.mu.Lock()
	var out *conn
	if b.strangers.Len() >= b.limits.Strangers || b.open >= b.limits.Connections {
		if first := b.strangers.Front(); first != nil {
			out, _ = first.Value.(*conn)
			b.forget(out)
		}
	}
	full := b.open >= b.limits.Connections
	var in *conn
	if !full {
		b.open++
		in = &conn{Conn: c, owner: b, closed: make(chan struct{})}
		in.place = b.strangers.PushBack(in)
	}
	b.mu.Unlock()
	if out != nil {
		b.report.say(slog.LevelWarn, "too many connections without a credential; closing the oldest", "address", b.Addr().String(), "bound", b.limits.Strangers)
		_ = out.close()
	}
	if full {
		b.report.say(slog.LevelError, "too many connections; refusing another", "address", b.Addr().String(), "bound", b.limits.Connections)
		_ = c.Close()
		return nil
	}
	return in
}

// forget takes a connection out of the count, once. The caller holds mu.
func (b *bounded) forget(c *conn) {
	if c.gone {
		return
	}
	c.gone = true
	b.open--
	b.know(c)
}

// know marks a connection as one that is not evicted. The caller holds mu.
func (b *bounded) know(c *conn) {
	if c.place != nil {
		b.strangers.Remove(c.place)
		c.place = nil
	}
}

// conn is a connection that is counted.
type conn struct {
	net.Conn
	owner *bounded
	known atomic.Bool

	once   sync.Once
	closed chan struct{}

	place *list.Element // among the strangers
	gone  bool          // no longer counted
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.owner.mu.Lock()
	c.owner.forget(c)
	c.owner.mu.Unlock()
	return c.close()
}

func (c *conn) close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Know says that a call on c has shown a credential that is accepted. Connections that are not of a [Bounded] listener,
// or wrapped by something without a NetConn method, are left alone. It may be called often.
func Know(c net.Conn) {
	if own := counted(c); own != nil {
		own.know()
	}
}

// Closed returns a channel that is closed with c, also when c makes room for another connection: for holders of c that
// do not read it. It is nil for connections that Know leaves alone.
func Closed(c net.Conn) <-chan struct{} {
	if own := counted(c); own != nil {
		return own.closed
	}
	return nil
}

// counted is the connection of a [Bounded] listener in or below c, if any.
func counted(c net.Conn) *conn {
	for {
		if own, ok := c.(*conn); ok {
			return own
		}
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = wrapper.NetConn()
	}
}

func (c *conn) know() {
	if c.known.Swap(true) {
		return
	}
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.owner.know(c)
}

type connKey struct{}

// WithConn puts the connection of a request into its context, as [http.Server.ConnContext] does.
//
// [http.Server.ConnContext]: https://pkg.go.dev/net/http#Server
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// CallerAddr is the remote address of the connection that WithConn put into ctx; nil for none.
func CallerAddr(ctx context.Context) net.Addr {
	if c, ok := ctx.Value(connKey{}).(net.Conn); ok {
		return c.RemoteAddr()
	}
	return nil
}

// KnowCaller is Know for the connection that WithConn put into ctx, if any. It lifts the deadline that the server gave
// the answer, which is for strangers: what bounds answers to known callers is left to their handlers.
func KnowCaller(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(net.Conn); ok {
		Know(c)
		_ = c.SetWriteDeadline(time.Time{}) // A connection that is closed needs none.
	}
}
