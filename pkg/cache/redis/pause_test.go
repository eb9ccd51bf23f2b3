package redis

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A server that takes connections and does not answer holds up one caller in a pause, not all that come after it.
func TestOneCallerAsksAgainAfterAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c Cache
		assert.False(t, c.pausing())
		require.Error(t, c.noted(t.Context(), errors.New("timeout")))
		assert.True(t, c.pausing())
		for range 3 {
			time.Sleep(pause)
			assert.False(t, c.pausing(), "the one that asks")
			assert.True(t, c.pausing())
			require.NoError(t, c.noted(t.Context(), errors.New("timeout")), "the failure is known")
		}
		require.NoError(t, c.noted(t.Context(), nil))
		assert.False(t, c.pausing())
		assert.False(t, c.pausing())
		require.Error(t, c.noted(t.Context(), errors.New("timeout")), "another outage")
	})
}
