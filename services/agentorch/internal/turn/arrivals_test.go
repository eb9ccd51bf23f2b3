package turn

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
		a, start := newArrivals(), time.Now()
		time.Sleep(time.Second)
		for i := range 2 * maxArrivals {
			a.note("projects/p", "tool "+strconv.Itoa(i))
		}
		known := 0
		for range a.last.All() {
			known++
		}
		assert.Equal(t, maxArrivals, known)
		latest := "tool " + strconv.Itoa(2*maxArrivals-1)
		assert.True(t, a.since("projects/p", latest, start))
		assert.False(t, a.since("projects/other", latest, start), "each project has its own")
		assert.False(t, a.since("projects/p", latest, time.Now()), "it came before")
		assert.False(t, a.since("projects/p", "tool 0", start), "the oldest is forgotten; who waits for it looks again in its own time")
	})
}
