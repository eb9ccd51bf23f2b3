package connlimit

import (
	"cmp"
	"container/list"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/bound"
)

// Limits bound the connections of a listener.
type Limits struct {
	// Connections is how many may be open at once, and Unauthenticated how many of them may be strangers'.
	Connections, Unauthenticated int
	// Served is how many strangers have a turn at once (see [Turn]).
	Served int
}

// LimitsFor returns the limits for a process with that many connections; zero is bound.Connections. Connections may use
// at most half of the files that the process may open, and strangers at most half of those connections.
func LimitsFor(connections int) Limits {
	connections = cmp.Or(connections, bound.Connections)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur < 2*uint64(connections) {
		connections = int(files.Cur / 2)
	}
	return Limits{Connections: connections, Unauthenticated: connections / 2, Served: bound.Strangers}
}

// Limit returns l with the bounds of limits. Another connection than there may be has one closed:
//
//   - the first of the strangers that have spoken without a credential (see [MarkUnauthenticated]),
//   - else one at random of the older half of the strangers, of those that have sent nothing, wait for their turn or have
//     it, whichever are most, so that a caller that is slow to show its credential has a chance, and a quick one is not
//     disturbed,
//   - else, where all connections are known callers', the one that has had no call for longest (see [CallBegan]).
//
// Where all are known callers' and have calls, or had one just now, the new connection is closed.
func Limit(l net.Listener, limits Limits, log *slog.Logger) net.Listener {
	return &limitedListener{Listener: l, limits: limits, report: report{log: log}}
}

type limitedListener struct {
	net.Listener
	limits Limits
	report report

	mu   sync.Mutex
	open int
	// Each open connection is in one of these, of *conn: strangers that have not asked for a turn, wait for one, or have
	// it; strangers that have made a request without a credential; known callers. Each is in the order in which
	// connections came to it.
	silent, waiting, served, suspects, callers list.List
	next                                       *time.Timer // fires when the first turn ends; nil if no connection waits for it
}

// change changes the lists, gives turns that are free to those that wait, and closes those whose turn has ended.
func (b *limitedListener) change(f func()) {
	b.mu.Lock()
	f()
	ended := b.giveTurns()
	b.mu.Unlock()
	for _, c := range ended {
		b.reportStranger()
		_ = c.close()
	}
}

func (b *limitedListener) reportStranger() {
	b.report.say(slog.LevelWarn, "too many connections without a credential; closing one", "address", b.Addr().String(), "bound", b.limits.Unauthenticated, "served", b.limits.Served)
}

// giveTurns gives turns to those that wait, the last that came first: it is served soon, however many have come before
// it. It takes turns from those that have spoken without a credential, or have had theirs for bound.StrangerTurn, and
// returns them. The caller holds mu.
func (b *limitedListener) giveTurns() (ended []*conn) {
	for b.waiting.Len() > 0 {
		if b.served.Len()+b.suspects.Len() >= b.limits.Served {
			c := connOf(b.suspects.Front())
			if c == nil {
				c = connOf(b.served.Front())
				if left := bound.StrangerTurn - time.Since(c.began); left > 0 {
					b.giveTurnsIn(left)
					return ended
				}
			}
			b.forget(c)
			ended = append(ended, c)
		}
		connOf(b.waiting.Back()).serve()
	}
	return ended
}

// giveTurnsIn gives turns after a while. The caller holds mu.
func (b *limitedListener) giveTurnsIn(d time.Duration) {
	if b.next == nil {
		b.next = time.AfterFunc(d, func() { b.change(func() { b.next = nil }) })
	}
}

// Accept implements [net.Listener].
func (b *limitedListener) Accept() (net.Conn, error) {
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
func (b *limitedListener) admit(c net.Conn) net.Conn {
	var stranger, idle, in *conn
	b.change(func() {
		if b.strangers() >= b.limits.Unauthenticated || b.open >= b.limits.Connections {
			stranger = b.leaving()
			b.forget(stranger)
		}
		if b.open >= b.limits.Connections {
			idle = b.idlest()
			b.forget(idle)
		}
		if b.open < b.limits.Connections {
			b.open++
			in = &conn{Conn: c, owner: b, turn: make(chan struct{}), closed: make(chan struct{})}
			in.put(&b.silent)
		}
	})
	if stranger != nil {
		b.reportStranger()
		_ = stranger.close()
	}
	if idle != nil {
		b.report.say(slog.LevelWarn, "too many connections; closing one without a call", "address", b.Addr().String(), "bound", b.limits.Connections)
		_ = idle.close()
	}
	if in == nil {
		b.report.say(slog.LevelError, "too many connections; refusing another", "address", b.Addr().String(), "bound", b.limits.Connections)
		_ = c.Close()
		return nil
	}
	return in
}

// strangers is how many there are. The caller holds mu.
func (b *limitedListener) strangers() int {
	return b.silent.Len() + b.waiting.Len() + b.served.Len() + b.suspects.Len()
}

// leaving is the stranger to close next; nil if there is none. The caller holds mu.
func (b *limitedListener) leaving() *conn {
	from := b.suspects.Front()
	if from == nil {
		most := &b.silent
		for _, l := range []*list.List{&b.waiting, &b.served} {
			if l.Len() > most.Len() {
				most = l
			}
		}
		from = most.Front()
		for range rand.IntN(most.Len()/2 + 1) { //nolint:gosec // No secret depends on it.
			from = from.Next()
		}
	}
	return connOf(from)
}

// idlest is the known caller's connection that has been without a call for longest; nil if all have calls, or had one
// just now. The caller holds mu.
func (b *limitedListener) idlest() *conn {
	var found *conn
	since := time.Now().Add(-bound.SpareIdle)
	for e := b.callers.Front(); e != nil; e = e.Next() {
		if c := connOf(e); c.calls == 0 && c.idle.Before(since) {
			found, since = c, c.idle
		}
	}
	return found
}

// connOf is the connection of an element; nil for nil.
func connOf(e *list.Element) *conn {
	if e == nil {
		return nil
	}
	c, _ := e.Value.(*conn)
	return c
}

// forget takes a connection out of the count, once. The caller holds mu.
func (b *limitedListener) forget(c *conn) {
	if c == nil || c.in == nil {
		return
	}
	b.open--
	c.put(nil)
}

// conn is a connection that is counted.
type conn struct {
	net.Conn
	owner *limitedListener
	known atomic.Bool

	turn   chan struct{} // closed when it is served
	once   sync.Once
	closed chan struct{}

	// The owner's mu guards these.
	in    *list.List // nil once it is no longer counted
	place *list.Element
	began time.Time // its turn
	calls int       // in flight
	idle  time.Time // when the last of them ended, or the caller became known
}

// put moves a connection to a list; nil is none. The caller holds the owner's mu.
func (c *conn) put(to *list.List) {
	if c.in != nil {
		c.in.Remove(c.place)
	}
	if c.in = to; to != nil {
		c.place = to.PushBack(c)
	}
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.owner.change(func() { c.owner.forget(c) })
	return c.close()
}

func (c *conn) close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// MarkAuthenticated records that a call on c has an accepted credential. Connections that are not of a [Limit]
// listener, or wrapped without a NetConn method, are ignored. It is idempotent.
func MarkAuthenticated(c net.Conn) {
	if own := counted(c); own != nil {
		own.know()
	}
}

// Closed returns a channel that is closed with c, also when c makes room for another connection: for holders of c that
// do not read it. It is nil for connections that MarkAuthenticated ignores.
func Closed(c net.Conn) <-chan struct{} {
	if own := counted(c); own != nil {
		return own.closed
	}
	return nil
}

// counted is the connection of a [Limit] listener in or below c, if any.
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
	c.owner.change(func() {
		if c.in != nil {
			c.idle = time.Now()
			c.put(&c.owner.callers)
		}
	})
}

// serve begins the turn of c. The caller holds the owner's mu.
func (c *conn) serve() {
	c.put(&c.owner.served)
	c.began = time.Now()
	close(c.turn)
}

// Turn waits until c may be served. Until then no more is read from c than its protocol's first bytes, so that it takes
// little memory. It reports whether the turn came, which it does not if c was closed, or within bound.Greeting. A turn
// ends with an accepted credential; another connection that waits ends it after bound.StrangerTurn, or at once if the
// connection has spoken without a credential, and closes c. A connection has one turn, and those that are not of a
// [Limit] listener always have it.
func Turn(c net.Conn) bool {
	own := counted(c)
	if own == nil {
		return true
	}
	own.owner.change(func() {
		if own.in == &own.owner.silent {
			own.put(&own.owner.waiting)
		}
	})
	late := time.NewTimer(bound.Greeting)
	defer late.Stop()
	select {
	case <-own.turn:
		return true
	case <-own.closed:
	case <-late.C:
	}
	return false
}

// MarkUnauthenticated records that c has made a request without an accepted credential. It is closed before connections
// that have made none. MarkAuthenticated ends the suspicion.
func MarkUnauthenticated(c net.Conn) {
	own := counted(c)
	if own == nil || own.known.Load() {
		return
	}
	own.owner.change(func() {
		if own.in == &own.owner.silent || own.in == &own.owner.served {
			own.put(&own.owner.suspects)
		}
	})
}

// CallBegan records that a call has begun on c, and End that it has ended.
func CallBegan(c net.Conn) { count(c, 1) }

// CallEnded ends a call that Begin has begun.
func CallEnded(c net.Conn) { count(c, -1) }

func count(c net.Conn, calls int) {
	own := counted(c)
	if own == nil {
		return
	}
	own.owner.mu.Lock()
	defer own.owner.mu.Unlock()
	if own.calls += calls; own.calls == 0 {
		own.idle = time.Now()
	}
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

// MarkCallerUnauthenticated is Suspect for the connection that WithConn put into ctx, if any.
func MarkCallerUnauthenticated(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(net.Conn); ok {
		MarkUnauthenticated(c) //nolint:contextcheck // What it may log is of another connection.
	}
}

// MarkCallerAuthenticated is MarkAuthenticated for the connection that WithConn put into ctx, if any. It lifts the
// server's deadline for the answer, which is for strangers: handlers bound their answers to known callers.
func MarkCallerAuthenticated(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(net.Conn); ok {
		MarkAuthenticated(c)                //nolint:contextcheck // What it may log is of another connection.
		_ = c.SetWriteDeadline(time.Time{}) // A connection that is closed needs none.
	}
}
