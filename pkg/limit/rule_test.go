package limit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a store holds of a rule is all of it.
func TestARuleSurvivesItsEncoding(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 5, time.UTC)
	adaptive := NewRule(Request{Adaptive: &Bounds{Min: 2, Start: 4, Max: 20, Cooldown: time.Minute, DecreaseFactor: 0.5, ScaleUp: 0.05}})
	adaptive.Acquired(4, now)
	for range 6 {
		adaptive.Report(Clean, now, "m")
	}
	adaptive.Report(RateLimited, now, "m")
	require.NoError(t, adaptive.SetMax(1, now))
	for _, r := range []*Rule{adaptive, NewRule(Request{Fixed: 3})} {
		decoded, err := DecodeRule(r.Encode())
		require.NoError(t, err)
		if r.controller != nil {
			assert.Len(t, decoded.controller.history, 3)
		}
		assert.Equal(t, r, decoded)
	}
}

func TestWhatIsNoRuleIsAnError(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{{"", "[]"}, {"{}", "[]"}, {`{"fixed":1}`, ""}, {`{"adaptive":{}}`, "[]"}} {
		_, err := DecodeRule(c[0], c[1])
		assert.Error(t, err, c)
	}
}

// The clock of a rule may be that of a server, and be set back: the limit still follows what it meets.
func TestACooldownEndsThoughTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	r := NewRule(Request{Adaptive: &Bounds{Min: 1, Start: 8, Max: 20, Cooldown: time.Minute, DecreaseFactor: 0.5, ScaleUp: 0.05}})
	r.Report(RateLimited, now, "m")
	r.Report(RateLimited, now, "m")
	require.Equal(t, 4, r.Limit(), "the cooldown lasts")
	r.Report(RateLimited, now.Add(-time.Hour), "m")
	assert.Equal(t, 2, r.Limit())
}
