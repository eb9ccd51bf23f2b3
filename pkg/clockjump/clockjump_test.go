package clockjump_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/clockjump"
)

func TestLongGapsAreNoticed(t *testing.T) {
	t.Parallel()
	var d clockjump.Detector
	now := time.Unix(1_000_000, 0)
	for _, look := range []struct {
		after, want time.Duration
	}{
		{0, 0},
		{10 * time.Second, 0},
		{time.Minute, 0},
		{20 * time.Minute, 20 * time.Minute},
		{time.Second, 0},
		{-time.Hour, 0},
		{time.Second, 0},
	} {
		now = now.Add(look.after)
		assert.Equal(t, look.want, d.Look(now, time.Minute), "%s later", look.after)
	}
}
