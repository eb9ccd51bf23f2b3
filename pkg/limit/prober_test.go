package limit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// probed is a Prober whose slots are all in use.
type probed struct {
	*Prober
	now time.Time
}

func newProbed(b Bounds) *probed {
	return &probed{NewProber(b), time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)}
}

// succeed makes n successes, 30 a second, and returns the limit.
func (p *probed) succeed(n int) int {
	for range n {
		p.Acquired(p.limit, p.now)
		p.now = p.now.Add(time.Second / 30)
		p.Clean(p.now, "m")
	}
	return p.limit
}

// refuse makes n refusals of calls that began before the first, and returns the limit.
func (p *probed) refuse(n int) int {
	p.Acquired(p.limit, p.now)
	for range n {
		p.now = p.now.Add(time.Second / 30)
		p.RateLimited(p.now, "m")
	}
	return p.limit
}

func TestAProbersLimit(t *testing.T) {
	t.Parallel()
	type step struct {
		succeed, refuse int
		want            int
	}
	for name, c := range map[string]struct {
		bounds Bounds
		steps  []step
	}{
		"doubles in each round until a refusal": {
			Bounds{Min: 1, Start: 4, Max: 100},
			[]step{{succeed: 4, want: 8}, {succeed: 8, want: 16}, {succeed: 84, want: 100}, {succeed: 300, want: 100}},
		},
		"loses the slot that was refused, and tries it again after 200 successes": {
			Bounds{Min: 1, Start: 30, Max: 100},
			[]step{{refuse: 1, want: 29}, {succeed: 199, want: 29}, {succeed: 1, want: 30}, {refuse: 1, want: 29}, {succeed: 199, want: 29}, {succeed: 1, want: 30}},
		},
		"tries a high limit after three rounds": {
			Bounds{Min: 1, Start: 300, Max: 1000},
			[]step{{refuse: 1, want: 299}, {succeed: 3*299 - 1, want: 299}, {succeed: 1, want: 300}},
		},
		"grows ever faster where a try is not refused": {
			Bounds{Min: 1, Start: 41, Max: 200},
			[]step{{refuse: 1, want: 40}, {succeed: 200, want: 41}, {succeed: 21, want: 42}, {succeed: 22, want: 44}, {succeed: 23, want: 48}, {succeed: 26, want: 56}, {succeed: 32, want: 73}},
		},
		"loses ever more in a shortage, up to a tenth, and half of that comes back in each round": {
			Bounds{Min: 1, Start: 80, Max: 200},
			[]step{{refuse: 7, want: 80 - 1 - 2 - 3 - 4 - 5 - 6 - 5}, {succeed: 61, want: 67}, {succeed: 67, want: 73}, {succeed: 71, want: 76}},
		},
		"never falls below the lowest": {
			Bounds{Min: 10, Start: 20, Max: 200},
			[]step{{refuse: 7, want: 13}, {succeed: 1, want: 13}, {refuse: 7, want: 10}},
		},
		"is one call after twelve refusals in a row, and soon what it was after a success": {
			Bounds{Min: 5, Start: 80, Max: 200},
			[]step{{refuse: 11, want: 37}, {refuse: 1, want: 1}, {refuse: 100, want: 1}, {succeed: 1, want: 34}, {succeed: 79, want: 64}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProbed(c.bounds)
			for i, s := range c.steps {
				got := p.succeed(s.succeed)
				if s.refuse > 0 {
					got = p.refuse(s.refuse)
				}
				assert.Equal(t, s.want, got, fmt.Sprint("step ", i, " ", s))
			}
		})
	}
}

// A limit that callers do not use up shows nothing about the capacity.
func TestAProberGrowsOnlyWhileItsLimitIsUsed(t *testing.T) {
	t.Parallel()
	p := NewProber(Bounds{Min: 1, Start: 20, Max: 100})
	for range 1000 {
		p.Acquired(10, time.Time{})
		p.Clean(time.Time{}, "m")
	}
	assert.Equal(t, 20, p.Limit())
	p.Acquired(10, time.Time{})
	p.RateLimited(time.Time{}, "m")
	assert.Equal(t, 9, p.Limit(), "what was refused are 10 calls at once, not 20")
}

// A provider that refuses everything for a while is soon used again, though calls that began before are served amid the
// refusals: the limit falls to the lowest, its ceiling by half, and then one call asks.
func TestAProberComesBackAfterAnOutage(t *testing.T) {
	t.Parallel()
	p := newProbed(Bounds{Min: 5, Start: 80, Max: 200})
	p.refuse(1)
	p.succeed(200)
	for range 10 {
		p.Clean(p.now, "m")
		p.refuse(4)
	}
	require.Equal(t, 5, p.limit)
	require.Equal(t, 1, p.refuse(100))
	assert.GreaterOrEqual(t, p.succeed(5+20+30+35), 35)
}

// A capacity below half of the limit is found too, however long each attempt at more is refused.
func TestAProberFindsACapacityFarBelowItsLimit(t *testing.T) {
	t.Parallel()
	for _, capacity := range []int{3, 6, 25} {
		p := newProbed(Bounds{Min: 1, Start: 80, Max: 200})
		refused := 0
		for served := 0; served < 2000; {
			if p.limit > capacity {
				p.refuse(1)
				if served >= 1000 {
					refused++
				}
			} else {
				p.succeed(1)
				served++
			}
		}
		assert.LessOrEqual(t, refused, 10, "of 1000 calls of a provider that takes %d at once", capacity)
		assert.Equal(t, capacity, p.limit)
	}
}

// A ceiling that an operator raises is looked for as any other: one slot first.
func TestAProberTriesWhatARaisedMaximumAllows(t *testing.T) {
	t.Parallel()
	p := newProbed(Bounds{Min: 1, Start: 20, Max: 20})
	p.refuse(1)
	require.Equal(t, 20, p.succeed(2000))
	require.NoError(t, p.SetMax(100, p.now))
	assert.Equal(t, 20, p.succeed(199))
	assert.Equal(t, 21, p.succeed(1))
	require.NoError(t, p.SetMax(10, p.now))
	assert.Equal(t, 10, p.succeed(300))
}

// Steps of one slot, many in a second, are few changes in the history.
func TestAProbersHistoryIsShort(t *testing.T) {
	t.Parallel()
	p := newProbed(Bounds{Min: 1, Start: 20, Max: 100})
	p.succeed(59)
	p.refuse(5)
	var changes []string
	for _, c := range p.history.list() {
		changes = append(changes, fmt.Sprint(c.Old, "→", c.New, " ", c.Reason))
	}
	assert.Equal(t, []string{"20→51 slow_start", "51→79 slow_start", "79→64 rate_limit"}, changes)
}
