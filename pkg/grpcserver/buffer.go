package grpcserver

import (
	"fmt"

	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
)

// Buffers for messages have 2^8 to 2^22 bytes. Each is twice as long as the next shorter one, so that a message takes
// one of less than twice its length, which grpc-go clears before each use. Its own sizes have none between 32 KiB and
// 1 MiB, so that for a message of 100 KB a whole MiB was held and cleared.
const minExponent, maxExponent = 8, 22

func init() { //nolint:gochecknoinits // grpc-go takes the buffers at initialization alone.
	var exponents []uint8
	for e := uint8(minExponent); e <= maxExponent; e++ {
		exponents = append(exponents, e)
	}
	pool, err := mem.NewBinaryTieredBufferPool(exponents...)
	if err != nil {
		panic(fmt.Sprintf("buffers for messages: %v", err)) // The exponents are constants.
	}
	experimental.SetDefaultBufferPool(pool)
}
