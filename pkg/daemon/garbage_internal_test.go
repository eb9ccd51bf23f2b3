package daemon

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestASmallHeapHasRoomForGarbageAndALargeOneDoubles(t *testing.T) {
	t.Parallel()
	for live, percent := range map[uint64]int{0: 9600, 1 << 20: 9600, 64 << 20: 150, 192 << 20: 100, 1 << 30: 100} {
		assert.Equal(t, percent, target(live), live)
	}
	runtime.GC()
	assert.Positive(t, live())
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
