package daemon

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/evalfleet/evalfleet/pkg/lifecycle"
)

const (
	// spareBytes is how much garbage a process may make between collections, however small its heap: collecting a heap
	// of 30 MB each time that it had doubled took a sixth of the processor time of a busy server.
	spareBytes = 96 << 20
	// usualPercent is the collector's own target: a heap may double.
	usualPercent = 100
)

// spend makes the collector trade memory for processor time while the heap is small; with a heap larger than spareBytes
// the collector keeps its defaults. An operator's GOGC has precedence. The returned function ends the effect.
func spend() (end func()) {
	if before := debug.SetGCPercent(usualPercent); before != usualPercent {
		debug.SetGCPercent(before)
		return func() {}
	}
	ended := make(chan struct{})
	percent := usualPercent
	afterEach(ended, func() {
		if next := target(live()); next*10 > percent*11 || next*11 < percent*10 { // To set it stops the process for a moment.
			percent = next
			debug.SetGCPercent(next)
		}
	})
	return func() {
		close(ended)
		debug.SetGCPercent(usualPercent)
	}
}

// collector is [spend] as a part of a process.
func collector() lifecycle.Part {
	end := func() {}
	return lifecycle.Part{
		Name:  "collector",
		Start: func(context.Context) error { end = spend(); return nil },
		Stop:  func(context.Context) error { end(); return nil },
	}
}

// target is how many percent of a heap may be garbage before the next collection.
func target(live uint64) int {
	return int(max(usualPercent, spareBytes*100/max(live, 1<<20)))
}

// live is how many bytes the last collection left.
func live() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// sentinel is an object that nothing leads to, so that each collection finds it.
type sentinel struct{ _ [64]byte }

// afterEach calls f after each collection until ended is closed, from one goroutine at a time.
func afterEach(ended <-chan struct{}, f func()) {
	runtime.AddCleanup(new(sentinel), func(struct{}) {
		select {
		case <-ended:
		default:
			f()
			afterEach(ended, f)
		}
	}, struct{}{})
}
