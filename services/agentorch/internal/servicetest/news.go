package servicetest

import (
	"context"

	"google.golang.org/grpc"
)

// news is a watch that delivers what a channel receives, and nothing if the channel is nil.
type news[R any] struct {
	grpc.ServerStreamingClient[R]
	ctx  context.Context //nolint:containedctx // a stream has one
	from <-chan *R
}

// Recv implements the stream.
func (n news[R]) Recv() (*R, error) {
	select {
	case one := <-n.from:
		return one, nil
	case <-n.ctx.Done():
		return nil, n.ctx.Err()
	}
}
