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
