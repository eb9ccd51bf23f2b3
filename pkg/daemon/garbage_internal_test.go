package daemon

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestASmallHeapHasRoomForGarbageAndALargeOneDoubles(t *testing.T) {
	t.Parallel()
	busy := period{garbage: 1 << 30, share: 1}
	for live, percent := range map[uint64]int{0: 9600, 1 << 20: 9600, 64 << 20: 150, 192 << 20: 100, 1 << 30: 100} {
		assert.Equal(t, percent, target(live, busy), live)
	}
	runtime.GC()
	assert.Positive(t, readUsage().live)
}

// A collector that takes its share has the room that it has, one that takes more has more, and a process that makes
// little garbage keeps little of it.
func TestRoomForGarbageFollowsWhatCollectionsCost(t *testing.T) {
	t.Parallel()
	const live = 4 << 20
	for percent, last := range map[int]period{
		800:  {garbage: 32 << 20, share: wantedShare},
		400:  {garbage: 32 << 20, share: wantedShare / 2},
		1600: {garbage: 32 << 20, share: 2 * wantedShare},
		200:  {garbage: 32 << 20},
		1000: {garbage: 20 << 20, share: 1},
		2400: {garbage: 64 << 20, share: 1},
	} {
		assert.Equal(t, percent, target(live, last))
	}
	assert.Equal(t, 50, target(64<<20, period{}), "half of a large heap")
	begin := time.Now()
	earlier := usage{at: begin, live: 5, freed: 10, collecting: 1}
	later := usage{at: begin.Add(time.Second), live: 9, freed: 30, collecting: 1 + 0.5*float64(runtime.GOMAXPROCS(0))}
	assert.Equal(t, period{garbage: 20, share: 0.5}, later.since(earlier), "what a heap grows by is in use")
}

func TestEachCollectionIsTold(t *testing.T) {
	t.Parallel()
	ended, told := make(chan struct{}), make(chan struct{})
	afterEach(ended, func() {
		select {
		case told <- struct{}{}:
		case <-ended:
		}
	})
	collected := make(chan struct{})
	go func() { // Cleanups run some time after a collection.
		defer close(collected)
		for {
			select {
			case <-ended:
				return
			default:
				runtime.GC()
			}
		}
	}()
	for range 3 {
		waittest.For(t, told, "a collection is told")
	}
	close(ended)
	waittest.For(t, collected, "the collections end")
}
