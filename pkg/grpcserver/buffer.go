package grpcserver

import (
	"fmt"

	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
)

// The buffers for messages have these sizes in bits: a message takes one that is less than twice as long, which grpc-go
// clears before each use. Its own sizes have none between 32 KiB and 1 MiB, so that for a message of 100 KB a whole
// MiB was held and cleared.
const leastBuffer, mostBuffer = 8, 22

func init() { //nolint:gochecknoinits // grpc-go takes the buffers at initialization alone.
	var sizes []uint8
	for bits := uint8(leastBuffer); bits <= mostBuffer; bits++ {
		sizes = append(sizes, bits)
	}
	pool, err := mem.NewBinaryTieredBufferPool(sizes...)
	if err != nil {
		panic(fmt.Sprintf("buffers for messages: %v", err)) // The sizes are constants.
	}
	experimental.SetDefaultBufferPool(pool)
}
