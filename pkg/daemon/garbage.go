package daemon

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/evalfleet/evalfleet/pkg/lifecycle"
)

const (
	// leastSpare and mostSpare bound how much garbage a process with a small heap may make between collections, in bytes.
	leastSpare, mostSpare = 8 << 20, 96 << 20
	// wantedShare is the share of the processor time that the collector should take at most.
	wantedShare = 1. / 32
	// mostGrowth bounds how much more room one period gives than the one before: to begin its work a process collects
	// more often than later.
	mostGrowth = 2
	// usualPercent is the collector's own target: a heap may double. It is that until the first collection.
	usualPercent = 100
)

// spend makes the collector trade memory for processor time while the heap is small: collecting a heap of 30 MB each
// time that it had doubled took a sixth of the processor time of a busy server, and a server that makes little garbage
// needs no room for it. An operator's GOGC has precedence. The returned function ends the effect.
func spend() (end func()) {
	if before := debug.SetGCPercent(usualPercent); before != usualPercent {
		debug.SetGCPercent(before)
		return func() {}
	}
	ended := make(chan struct{})
	percent, last := usualPercent, readUsage()
	afterEach(ended, func() {
		now := readUsage()
		next := target(now.live, now.since(last))
		last = now
		if next*10 > percent*11 || next*11 < percent*10 { // To set it stops the process for a moment.
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

// target is how many percent of a live heap may be garbage before the next collection. The room that lets the collector
// take its share of the processor time is proportional to the share that it took with the garbage of the last period.
// It is at least half of a large heap, and at most as much as that.
func target(live uint64, period period) int {
	heap := float64(max(live, 1<<20))
	spare := float64(period.garbage) * min(period.share/wantedShare, mostGrowth)
	return int(min(max(spare, leastSpare, heap/2), max(mostSpare, heap)) * 100 / heap)
}

// period is what happened between two collections.
type period struct {
	// garbage is how many bytes were freed.
	garbage uint64
	// share is the part of the processor time that the collector took, of all processors that the process may use.
	share float64
}

// usage is what the process has used up to a collection.
type usage struct {
	at time.Time
	// live is how many bytes the collection left, and freed how many were freed up to now. What is in use cannot count as
	// garbage so, however long after the collection it is read.
	live, freed uint64
	// collecting is the processor time of the collector, in seconds.
	collecting float64
}

// since is the period from an earlier collection to this one.
func (u usage) since(earlier usage) period {
	available := u.at.Sub(earlier.at).Seconds() * float64(runtime.GOMAXPROCS(0))
	return period{garbage: u.freed - earlier.freed, share: (u.collecting - earlier.collecting) / max(available, 1e-3)}
}

func readUsage() usage {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/heap/frees:bytes"},
		{Name: "/cpu/classes/gc/mark/assist:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/dedicated:cpu-seconds"},
		{Name: "/cpu/classes/gc/pause:cpu-seconds"},
	}
	metrics.Read(samples)
	u := usage{at: time.Now(), live: samples[0].Value.Uint64(), freed: samples[1].Value.Uint64()}
	for _, s := range samples[2:] {
		u.collecting += s.Value.Float64()
	}
	return u
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
