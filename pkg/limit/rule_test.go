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
		adaptive.Report(Report{Outcome: Clean, Subject: "m"}, now)
	}
	adaptive.Report(Report{Outcome: RateLimited, Subject: "m"}, now)
	require.NoError(t, adaptive.SetMax(1, now))
	probing := NewRule(Request{Adaptive: &Bounds{Min: 2, Start: 40, Max: 90, Probing: true}})
	for at := range 500 {
		probing.Acquired(probing.Limit(), now)
		outcome := Outcome(at%100/99)*(RateLimited-Retried) + Retried
		probing.Report(Report{Outcome: outcome, Subject: "m"}, now.Add(time.Duration(at)*time.Second/10))
	}
	for _, r := range []*Rule{adaptive, probing, NewRule(Request{Fixed: 3})} {
		state, history := r.Encode()
		read, err := DecodeHistory(history.Text())
		require.NoError(t, err)
		if !r.Adaptive() {
			read = nil
		}
		decoded, err := DecodeRule(state, read)
		require.NoError(t, err)
		if r.Adaptive() {
			assert.GreaterOrEqual(t, len(read.list()), 3)
		}
		assert.Equal(t, r, decoded)
	}
}

func TestWhatIsNoRuleIsAnError(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"", "{}", `{"recorded":{}}`, `{"probing":{}}`, "[]"} {
		_, err := DecodeRule(state, nil)
		assert.Error(t, err, state)
	}
	_, err := DecodeRule(`{"adaptive":{"limit":8}}`, nil)
	require.ErrorIs(t, err, errNoRule, "as another version wrote it")
	_, err = DecodeHistory("")
	assert.Error(t, err)
}

// The clock of a rule may be that of a server, and be set back: the limit still follows what it meets.
func TestACooldownEndsThoughTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	r := NewRule(Request{Adaptive: &Bounds{Min: 1, Start: 8, Max: 20, Cooldown: time.Minute, DecreaseFactor: 0.5, ScaleUp: 0.05}})
	r.Report(Report{Outcome: RateLimited, Subject: "m"}, now)
	r.Report(Report{Outcome: RateLimited, Subject: "m"}, now)
	require.Equal(t, 4, r.Limit(), "the cooldown lasts")
	r.Report(Report{Outcome: RateLimited, Subject: "m"}, now.Add(-time.Hour))
	assert.Equal(t, 2, r.Limit())
}

// An exchange reads and writes a rule often; its history, which is long, is read and made into text only when it has
// changed.
func TestAHistoryIsEncodedOnce(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	bounds := Bounds{Min: 1, Start: 1, Max: 20, DecreaseFactor: 0.5, ScaleUp: 0.05}
	long, short := NewRule(Request{Adaptive: &bounds}), NewRule(Request{Adaptive: &bounds})
	for range MaxHistory {
		for range 4 {
			long.Acquired(20, now)
			long.Report(Report{Outcome: Clean, Subject: "m"}, now)
		}
		require.NoError(t, long.SetMax(1, now))
		require.NoError(t, long.SetMax(20, now))
	}
	require.Len(t, long.adaptive.at().history.list(), MaxHistory)
	exchange := func(r *Rule) float64 {
		return testing.AllocsPerRun(100, func() {
			state, history := r.Encode()
			_ = history.Text()
			r, err := DecodeRule(state, history)
			if err == nil {
				r.Report(Report{Outcome: Clean, Subject: "m"}, now)
			}
		})
	}
	long.adaptive.at().history.Text()
	assert.InDelta(t, exchange(short), exchange(long), 5)
}
