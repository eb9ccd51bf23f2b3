package respcache_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/respcache"
)

func TestAnExpiryIsNeverLessThanItSays(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for text, want := range map[string]time.Duration{"292Y": 292 * year, "2147483647s": 2147483647 * time.Second, "0s": 0} {
		got, err := respcache.ParseExpiry(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"293Y", "2147483647Y", "2147483647D"} {
		_, err := respcache.ParseExpiry(text)
		assert.ErrorContains(t, err, "write never", text)
	}
}
