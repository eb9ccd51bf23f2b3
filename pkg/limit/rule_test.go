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
	probing := NewRule(Request{Adaptive: &Bounds{Min: 2, Start: 40, Max: 90, Probing: true}})
	for at := range 500 {
		probing.Acquired(probing.Limit(), now)
		probing.Report(Outcome(at%100/99)*(RateLimited-Retried)+Retried, now.Add(time.Duration(at)*time.Second/10), "m")
	}
	for _, r := range []*Rule{adaptive, probing, NewRule(Request{Fixed: 3})} {
		decoded, err := DecodeRule(r.Encode())
		require.NoError(t, err)
		if r.Adaptive() {
			assert.GreaterOrEqual(t, len(decoded.adaptive.at().history), 3)
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

// An exchange writes a rule often; its history, which is long, is made into text only when it has changed.
func TestAHistoryIsEncodedOnce(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	r := NewRule(Request{Adaptive: &Bounds{Min: 1, Start: 8, Max: 20, DecreaseFactor: 0.5, ScaleUp: 0.05}})
	require.NoError(t, r.SetMax(1, now))
	for range MaxHistory {
		r.Report(Clean, now, "m")
		require.NoError(t, r.SetMax(2, now))
		require.NoError(t, r.SetMax(1, now))
		for range 4 {
			r.Acquired(2, now)
			r.Report(Clean, now, "m")
		}
	}
	r.Encode()
	short := NewRule(Request{Adaptive: &Bounds{Min: 1, Start: 8, Max: 20, DecreaseFactor: 0.5, ScaleUp: 0.05}})
	allocations := func(r *Rule) float64 {
		return testing.AllocsPerRun(10, func() { r.Report(Clean, now, "m"); r.Encode() })
	}
	assert.InDelta(t, allocations(short), allocations(r), 2)
}
