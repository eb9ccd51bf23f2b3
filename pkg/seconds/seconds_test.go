package seconds_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/seconds"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 1500*time.Millisecond, seconds.Duration(1.5))
	assert.Zero(t, seconds.Duration(0))
	for _, n := range []float64{1e12, 1e300, math.Inf(1)} {
		assert.Greater(t, seconds.Duration(n), 100*365*24*time.Hour)
		assert.Greater(t, seconds.Duration(n)+time.Hour, seconds.Duration(n), "a deadline can be made of it")
	}
}
