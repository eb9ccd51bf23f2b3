// Package connlimit accepts the connections of a server, so that neither a failure nor strangers block known callers.
//
// Its one idea: a connection is a stranger's until a call on it has an accepted credential. [RetryAccept] survives
// failed accepts. [Limit] bounds connections: all of them, and strangers' more closely. When another connection exceeds
// the bound, a stranger's is closed, so that a caller with a credential is answered while strangers hold as many as
// they can. pkg/auth decides which credentials are accepted, and servers call [MarkAuthenticated].
package connlimit

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/retry"
)

// reportEvery is how often the same trouble is logged.
const reportEvery = 10 * time.Second

// RetryAccept returns l with an Accept that fails only if l or the returned listener is closed. Any other failure, such
// as too many open files, is logged at error and followed by a pause.
func RetryAccept(l net.Listener, log *slog.Logger) net.Listener {
	return &retryingListener{Listener: l, report: report{log: log}, closed: make(chan struct{})}
}

type retryingListener struct {
	net.Listener
	report report
	once   sync.Once
	closed chan struct{}
}

// Accept implements [net.Listener].
func (p *retryingListener) Accept() (net.Conn, error) {
	for backoff := (retry.Backoff{First: bound.FirstAcceptPause, Max: bound.LongestAcceptPause}); ; {
		conn, err := p.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		p.report.say(slog.LevelError, "cannot accept connections; trying again", "address", p.Addr().String(), "error", err)
		select {
		case <-time.After(backoff.Next()):
		case <-p.closed:
			return nil, net.ErrClosed
		}
	}
}

// Close implements [net.Listener].
func (p *retryingListener) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Listener.Close()
}

// report logs trouble at most every reportEvery. It is safe for concurrent use.
type report struct {
	log *slog.Logger

	mu     sync.Mutex
	last   time.Time
	silent int // occurrences since then
}

func (r *report) say(level slog.Level, message string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.last.IsZero() && now.Sub(r.last) < reportEvery {
		r.silent++
		return
	}
	r.log.Log(context.Background(), level, message, append(args, "unlogged", r.silent)...)
	r.last, r.silent = now, 0
}
