package peers

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Workers that come and go under ever new names take no more memory than the latest of them.
func TestArrivalsAreRememberedUpToABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, start := NewWorkerArrivals(), time.Now()
		time.Sleep(time.Second)
		for i := range 2 * maxArrivals {
			a.Arrived("projects/p", "tool "+strconv.Itoa(i))
		}
		known := 0
		for range a.last.All() {
			known++
		}
		assert.Equal(t, maxArrivals, known)
		latest := "tool " + strconv.Itoa(2*maxArrivals-1)
		assert.True(t, a.Since("projects/p", latest, start))
		assert.False(t, a.Since("projects/other", latest, start), "each project has its own")
		assert.False(t, a.Since("projects/p", latest, time.Now()), "it came before")
		assert.False(t, a.Since("projects/p", "tool 0", start), "the oldest is forgotten; a run that waits for it looks again in its own time")
	})
}

// An arrival wakes the runs of its project that wait for it, and those that begin to wait a moment too late.
func TestAnArrivalWakesThoseThatWaitForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, woken := NewWorkerArrivals(), map[string]int{}
		wake := func(who string) func() { return func() { woken[who]++ } }
		stop, arrived := a.Await("projects/p", "tool x", time.Time{}, wake("x"))
		assert.False(t, arrived)
		_, _ = a.Await("projects/p", "tool y", time.Time{}, wake("y"))
		_, _ = a.Await("projects/q", "tool x", time.Time{}, wake("x of q"))
		before := time.Now()
		time.Sleep(time.Second)
		a.Arrived("projects/p", "tool x")
		assert.Equal(t, map[string]int{"x": 1}, woken)
		_, arrived = a.Await("projects/p", "tool x", before, wake("late"))
		assert.True(t, arrived)
		_, arrived = a.Await("projects/p", "tool x", time.Now(), func() {})
		assert.True(t, arrived, "it came at the instant from which the run waits")
		stop()
		a.Everywhere("tool x")
		assert.Equal(t, map[string]int{"x": 1, "x of q": 1, "late": 1}, woken)
	})
}
