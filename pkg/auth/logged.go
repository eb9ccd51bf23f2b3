package auth

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"

	"github.com/evalfleet/evalfleet/pkg/connlimit"
)

// logEvery is the shortest time between two log lines about rejected credentials, which any client can cause.
const logEvery = 10 * time.Second

// logged is an Authenticator that logs which credentials another rejects.
type logged struct {
	Authenticator

	log       *slog.Logger
	rejected  atomic.Int64
	sometimes rate.Sometimes
}

// Logged returns an Authenticator that decides as a does and logs rejected credentials: their number, and the address
// of the last caller, if the context has it, never the credential itself. It logs at most one line in ten seconds.
// Calls without a credential are not logged.
func Logged(a Authenticator, log *slog.Logger) Authenticator {
	return &logged{Authenticator: a, log: log, sometimes: rate.Sometimes{Interval: logEvery}}
}

// Unlogged returns the Authenticator behind Logged: for a check of a credential that is checked again later.
func Unlogged(a Authenticator) Authenticator {
	if l, ok := a.(*logged); ok {
		return l.Authenticator
	}
	return a
}

// Authenticate implements Authenticator.
func (l *logged) Authenticate(ctx context.Context, token string) (Principal, error) {
	p, err := l.Authenticator.Authenticate(ctx, token)
	if err != nil && token != "" {
		l.rejected.Add(1)
		l.sometimes.Do(func() {
			l.log.WarnContext(ctx, "a credential was rejected", "rejected", l.rejected.Swap(0), "from", from(ctx))
		})
	}
	return p, err
}

// from is the address of the caller without its port; empty if the context has none.
func from(ctx context.Context) string {
	addr := connlimit.CallerAddr(ctx) // of an HTTP request
	if p, ok := peer.FromContext(ctx); ok {
		addr = p.Addr
	}
	if addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}
