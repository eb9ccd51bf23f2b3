package peers

import (
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/lru"
)

// maxArrivals bounds the subjects whose last arrival is remembered, since workers choose their names.
const maxArrivals = 4096

// WorkerArrivals holds the runs that wait for a subject, such as a worker, and the time of each subject's last arrival,
// so that a run that begins to wait does not miss an arrival just before. It is safe for concurrent use.
type WorkerArrivals struct {
	mu      sync.Mutex
	last    *lru.Cache[subject, time.Time]
	waiting map[subject]map[*waiter]struct{}
}

// subject identifies a subject of waits within a project.
type subject struct{ project, name string }

type waiter struct{ wake func() }

// NewWorkerArrivals returns one without arrivals.
func NewWorkerArrivals() *WorkerArrivals {
	return &WorkerArrivals{last: lru.New[subject, time.Time](maxArrivals), waiting: map[subject]map[*waiter]struct{}{}}
}

// Await has wake called for each arrival of a subject, until stop is called. Wake must not block. Arrived reports
// whether the subject came at since or later, but before the call: wake is not called for that.
func (a *WorkerArrivals) Await(project, name string, since time.Time, wake func()) (stop func(), arrived bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of, w := subject{project, name}, &waiter{wake}
	if a.waiting[of] == nil {
		a.waiting[of] = map[*waiter]struct{}{}
	}
	a.waiting[of][w] = struct{}{}
	stop = func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if delete(a.waiting[of], w); len(a.waiting[of]) == 0 {
			delete(a.waiting, of)
		}
	}
	last, known := a.last.Get(of)
	return stop, known && !last.Before(since)
}

// Since reports whether a subject arrived after a time.
func (a *WorkerArrivals) Since(project, name string, then time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, _ := a.last.Get(subject{project, name})
	return last.After(then)
}

// Arrived wakes the runs of a project that wait for a subject.
func (a *WorkerArrivals) Arrived(project, name string) {
	a.mu.Lock()
	of := subject{project, name}
	a.last.Put(of, time.Now(), 1)
	var wake []func()
	for w := range a.waiting[of] {
		wake = append(wake, w.wake)
	}
	a.mu.Unlock()
	for _, w := range wake {
		w()
	}
}

// Hint wakes the runs of a project that wait for a subject. The arrival is not remembered: a run that begins to wait at
// the same time waits for as long as it was told.
func (a *WorkerArrivals) Hint(project, name string) {
	a.mu.Lock()
	var wake []func()
	for w := range a.waiting[subject{project, name}] {
		wake = append(wake, w.wake)
	}
	a.mu.Unlock()
	for _, w := range wake {
		w()
	}
}

// Everywhere wakes the runs of all projects that wait for a subject. The arrival is not remembered.
func (a *WorkerArrivals) Everywhere(name string) {
	a.mu.Lock()
	var wake []func()
	for of, waiters := range a.waiting {
		if of.name != name {
			continue
		}
		for w := range waiters {
			wake = append(wake, w.wake)
		}
	}
	a.mu.Unlock()
	for _, w := range wake {
		w()
	}
}
