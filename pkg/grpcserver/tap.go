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
	// large says that its answers are.
	large bool
}

// tap has calls before the transport reads on. It looks for the credential of a connection's first calls: once it has
// found one the connection is no stranger's. A credential that is rejected is counted once, by admit.
//
// It has the server be able to end a stream: a read or a write that waits for the client then fails. Calls with one
// request of known callers need that not. It refuses no call: gRPC keeps a timer for one that is refused here, until
// the deadline that the call came with.
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

// ender is what ends the stream of a context; nil of a call with one request of a known caller.
func ender(ctx context.Context) context.CancelCauseFunc {
	end, _ := ctx.Value(enderKey{}).(context.CancelCauseFunc)
	return end
}

// errUnread is why a stream was ended whose client does not read it.
var errUnread = errors.New("the client does not read")
