package grpcserver

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/tap"

	"github.com/evalfleet/evalfleet/pkg/auth"
)

type enderKey struct{}

type weighedKey struct{}

// weighed is a call as its connection's meter knows it.
type weighed struct {
	meter *meter
	call  uint32
	// large means that its answers are.
	large bool
}

// tap handles calls before the transport continues reading. It looks for the credential of a connection's first calls:
// once it has found one the connection is no longer a stranger's. A rejected credential is counted once, by admit.
//
// It enables the server to end a stream, or a call that waits: a read or a write that waits for the client then fails.
// Other unary calls of known callers do not need that. It refuses no call: for a call refused here gRPC keeps a timer
// until the call's deadline.
func (c *chain) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	m := metered(ctx)
	if m != nil && !m.known.Load() {
		if _, err := auth.Unlogged(c.auth).Authenticate(ctx, token(info.Header["authorization"])); err == nil {
			m.know()
		}
	}
	if c.plain[info.FullMethodName] {
		return ctx, nil
	}
	ctx, end := context.WithCancelCause(ctx) // The transport ends the outer one with the call, and so this one.
	ctx = context.WithValue(ctx, enderKey{}, end)
	if m != nil && !m.known.Load() {
		large := strings.HasPrefix(info.FullMethodName, reflectionPrefix)
		ctx = context.WithValue(ctx, weighedKey{}, weighed{meter: m, call: m.last(), large: large})
	}
	return ctx, nil
}

// token is that of the values of the authorization header.
func token(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return auth.Bearer(values[0])
}

// ender ends the stream of a context; nil for a unary call of a known caller.
func ender(ctx context.Context) context.CancelCauseFunc {
	end, _ := ctx.Value(enderKey{}).(context.CancelCauseFunc)
	return end
}

// errUnread is why a stream was ended whose client does not read it.
var errUnread = errors.New("the client does not read")
