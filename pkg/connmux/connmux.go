// Package connmux lets gRPC and HTTP share one address: it reads the first bytes of each connection and hands the
// connection to the server of its protocol.
package connmux

import (
	"bytes"
	"net"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/connlimit"
)

// preface is the start of every HTTP/2 connection with prior knowledge (RFC 9113, section 3.4), which gRPC clients
// always use.
const preface = "PRI * HTTP/2.0\r\n"

// Split accepts the connections of l and offers them through two listeners: those that begin as HTTP/2 to the first,
// all others to the second. Closing l ends both, and so does an Accept that fails; see pkg/connlimit for listeners that
// fail only when they are closed.
func Split(l net.Listener) (http2, http1 net.Listener) {
	a, b := newListener(l), newListener(l)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				a.fail(err)
				b.fail(err)
				return
			}
			go sniff(conn, a, b)
		}
	}()
	return a, b
}

func sniff(conn net.Conn, http2, http1 *listener) {
	_ = conn.SetReadDeadline(time.Now().Add(bound.Greeting))
	head := make([]byte, 0, len(preface))
	for len(head) < len(preface) && bytes.HasPrefix([]byte(preface), head) {
		n, err := conn.Read(head[len(head):cap(head)])
		if err != nil {
			_ = conn.Close()
			return
		}
		head = head[:len(head)+n]
	}
	_ = conn.SetReadDeadline(time.Time{})
	if !connlimit.Turn(conn) {
		_ = conn.Close()
		return
	}
	target := http1
	if string(head) == preface {
		target = http2
	}
	target.offer(&replayed{Conn: conn, head: head})
}

// replayed is a connection whose first bytes have been looked at.
type replayed struct {
	net.Conn
	head []byte
}

// NetConn returns the connection below.
func (c *replayed) NetConn() net.Conn { return c.Conn }

func (c *replayed) Read(b []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// listener gives out the connections that it is offered.
type listener struct {
	parent net.Listener
	conns  chan net.Conn
	done   chan struct{}
	once   sync.Once
	err    error
}

func newListener(parent net.Listener) *listener {
	return &listener{parent: parent, conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *listener) offer(conn net.Conn) {
	select {
	case l.conns <- conn:
	case <-l.done:
		_ = conn.Close()
	}
}

func (l *listener) fail(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.done)
	})
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, l.err
	}
}

func (l *listener) Close() error {
	l.fail(net.ErrClosed)
	return nil
}

func (l *listener) Addr() net.Addr { return l.parent.Addr() }
