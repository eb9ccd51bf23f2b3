// Package link is the guest's end of the one connection between a sandbox and its host: the guest dials out to a socket
// in a folder that the host made, and serves on the connection. When the connection ends it dials again, at once and
// then every few milliseconds, so that a host that was restarted finds its sandboxes without asking for them.
package link

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/retry"
)

// Redialling begins with minBackoff and doubles up to maxBackoff. After a long absence of the host a watch triggers the
// next attempt, and redialling only covers what a watch might miss; without a watch, maxBackoff applies.
const (
	minBackoff     = time.Millisecond
	maxBackoff     = 25 * time.Millisecond
	longAbsence    = 30 * time.Second
	watchedBackoff = 10 * time.Second
	leisureBackoff = 250 * time.Millisecond
)

// Config is how a listener gets its connections.
type Config struct {
	// Dial dials the host.
	Dial func() (net.Conn, error)
	// Idle is called before each attempt to dial, at least every ten seconds, with the time since when there has been
	// no host. Nil does nothing.
	Idle func(since time.Time)
	// Watch watches for the host until stop is called: changed gets a token when it may have come. Nil, or an error,
	// does without.
	Watch func() (changed <-chan struct{}, stop func(), err error)
}

// Listener gives a server one connection at a time: Accept dials out, and the next Accept waits until that connection
// has ended.
type Listener struct {
	cfg    Config
	ended  chan struct{} // holds a token while no connection is open
	closed chan struct{}
	once   sync.Once
}

// NewListener makes a listener.
func NewListener(cfg Config) *Listener {
	l := &Listener{cfg: cfg, ended: make(chan struct{}, 1), closed: make(chan struct{})}
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
	stir := since // when the host was last about to be there
	var changed <-chan struct{}
	for backoff := (retry.Backoff{First: minBackoff, Max: maxBackoff}); ; {
		if l.cfg.Idle != nil {
			l.cfg.Idle(since)
		}
		c, err := l.cfg.Dial()
		if err == nil {
			return &conn{Conn: c, ended: l.ended}, nil
		}
		pause := backoff.Next()
		if time.Since(stir) > longAbsence {
			if changed == nil && l.cfg.Watch != nil {
				if found, stop, err := l.cfg.Watch(); err == nil {
					defer stop()
					changed = found
					continue // it may have come before the watch began
				}
			}
			pause = leisureBackoff
			if changed != nil {
				pause = watchedBackoff
			}
		}
		select {
		case <-l.closed:
			return nil, errors.Join(net.ErrClosed, err)
		case <-changed:
			stir = time.Now() // it listens in a moment
			backoff.Reset()
		case <-time.After(pause):
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

// conn notifies its listener when it is closed.
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
