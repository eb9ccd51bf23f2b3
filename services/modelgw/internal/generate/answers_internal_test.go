package generate

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Large answers wait for room, the oldest never does, and small ones need none.
func TestLargeAnswersWaitForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := NewAnswers(64<<20, 4<<20)
		oldest, second, small := &answer{of: a}, &answer{of: a}, &answer{of: a}
		require.NoError(t, oldest.hold(t.Context(), 3<<20))
		require.NoError(t, second.hold(t.Context(), 2<<20))

		reads := make(chan error, 1)
		go func() { reads <- second.hold(t.Context(), 2<<20) }()
		synctest.Wait()
		require.Empty(t, reads, "there is no room")
		require.NoError(t, small.hold(t.Context(), free))
		require.NoError(t, oldest.hold(t.Context(), 30<<20), "else nobody would end")

		ctx, cancel := context.WithCancel(t.Context())
		third := &answer{of: a}
		cancel()
		require.ErrorIs(t, third.hold(ctx, 2<<20), context.Canceled)
		third.end()

		oldest.end()
		require.NoError(t, <-reads)
		second.end()
		small.end()
		assert.Zero(t, a.held)
		assert.Empty(t, a.large)
	})
}
