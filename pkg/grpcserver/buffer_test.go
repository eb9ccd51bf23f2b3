package grpcserver_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/mem"
)

// A message holds less than twice its size.
func TestABufferIsLessThanTwiceItsMessage(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1_000, 20_000, 40_000, 100_000, 600_000, 1_500_000, 4_000_000} {
		memory := mem.DefaultBufferPool().Get(size)
		assert.Len(t, *memory, size)
		assert.Less(t, cap(*memory), 2*size)
		mem.DefaultBufferPool().Put(memory)
	}
}
