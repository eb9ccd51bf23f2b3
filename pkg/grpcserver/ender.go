package grpcserver

import (
	"context"
	"errors"

	"google.golang.org/grpc/tap"
)

type enderKey struct{}

// endable has the server be able to end a stream: a read or a write that waits for the client then fails. Calls with one request of known callers need that not.
func (c *chain) endable(ctx context.Context, info *tap.Info) (context.Context, error) {
	if c.plain[info.FullMethodName] {
		return ctx, nil
	}
	ctx, end := context.WithCancelCause(ctx) // The transport ends the outer one with the call, and so this one.
	return context.WithValue(ctx, enderKey{}, end), nil
}

// ender is what ends the stream of a context; nil within the process, where callers are trusted.
func ender(ctx context.Context) context.CancelCauseFunc {
	end, _ := ctx.Value(enderKey{}).(context.CancelCauseFunc)
	return end
}

// errUnread is why a stream was ended whose client does not read it.
var errUnread = errors.New("the client does not read")
