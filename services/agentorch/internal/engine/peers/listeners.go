package peers

import (
	"sync"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
)

// ProgressListeners are the open calls that want progress, by project and key. The zero value has none. It is safe for
// concurrent use.
type ProgressListeners struct {
	mu sync.Mutex
	by map[request]func(*effectv1.Note)
}

type request struct{ parent, id string }

// Listen has a function called with the progress of a request, until stop is called.
func (l *ProgressListeners) Listen(parent, requestID string, listener func(*effectv1.Note)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[request]func(*effectv1.Note){}
	}
	key := request{parent, requestID}
	l.by[key] = listener
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.by, key)
	}
}

// Progress passes a note to the listener of a request, if there is one.
func (l *ProgressListeners) Progress(parent, requestID string, note *effectv1.Note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if listener := l.by[request{parent, requestID}]; listener != nil {
		listener(note)
	}
}
