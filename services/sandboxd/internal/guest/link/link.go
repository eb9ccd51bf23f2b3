// Package link is the guest's end of the one connection between a sandbox and its host: the guest dials out to a socket in a
// folder that the host made, and serves on the connection. When the connection ends it dials again, at once and then every few
// milliseconds, so that a host that was restarted finds its sandboxes without asking for them.
package link

import (
	"errors"
	"net"
	"sync"
	"time"
)

// Redialling begins with minBackoff and doubles up to maxBackoff; after a long absence of the host it is done at leisure.
const (
	minBackoff     = time.Millisecond
	maxBackoff     = 25 * time.Millisecond
	longAbsence    = 30 * time.Second
	leisureBackoff = 250 * time.Millisecond
)

// Listener gives a server one connection at a time: Accept dials out, and the next Accept waits until that connection has ended.
type Listener struct {
	dial   func() (net.Conn, error)
	ended  chan struct{} // holds a token while no connection is open
	closed chan struct{}
	once   sync.Once
	idle   func(since time.Time)
}

// NewListener makes a listener that gets its connections from dial. Idle is called before each attempt to dial with the time
// since when there has been no host; it may be nil.
func NewListener(dial func() (net.Conn, error), idle func(since time.Time)) *Listener {
	l := &Listener{dial: dial, ended: make(chan struct{}, 1), closed: make(chan struct{}), idle: idle}
	l.ended <- struct{}{}
	return l
}

// Accept waits until there is no open connection and then for the host. It fails only when the listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	case <-l.ended:
	}
	since := time.Now()
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		if time.Since(since) > longAbsence {
			backoff = leisureBackoff
		}
		if l.idle != nil {
			l.idle(since)
		}
		c, err := l.dial()
		if err == nil {
			return &conn{Conn: c, ended: l.ended}, nil
		}
		select {
		case <-l.closed:
			return nil, errors.Join(net.ErrClosed, err)
		case <-time.After(backoff):
		}
	}
}

// Close ends Accept.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is for logs.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "host", Net: "unix"} }

// conn tells when it is closed.
type conn struct {
	net.Conn
	ended chan<- struct{}
	once  sync.Once
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.ended <- struct{}{} })
	return err
}
