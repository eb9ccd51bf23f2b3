// Package lastvalue stores the latest value of each key and notifies watchers of changes. Post never waits for a
// watcher: a slow watcher skips intermediate values and costs one mark per key. Use it for progress that people watch;
// data that must not be lost belongs in a journal.
package lastvalue

import (
	"context"
	"maps"
	"sync"
	"time"
)

// Map is a set of values by key. The zero value is empty and ready to use; its methods are safe for concurrent use.
type Map[K comparable, V any] struct {
	mu       sync.Mutex
	values   map[K]V
	watchers map[*Watcher[K, V]]struct{}
}

// Post sets the value of a key.
func (b *Map[K, V]) Post(key K, value V) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.values == nil {
		b.values = map[K]V{}
	}
	b.values[key] = value
	for w := range b.watchers {
		if w.wants(key) {
			w.mark(key)
		}
	}
}

// Clear takes the value of a key away.
func (b *Map[K, V]) Clear(key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, there := b.values[key]; !there {
		return
	}
	delete(b.values, key)
	for w := range b.watchers {
		if _, told := w.told[key]; told {
			w.mark(key)
		} else {
			delete(w.marked, key)
		}
	}
}

// All returns the values of the keys for which wants returns true.
func (b *Map[K, V]) All(wants func(K) bool) map[K]V {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := maps.Clone(b.values)
	maps.DeleteFunc(all, func(key K, _ V) bool { return !wants(key) })
	return all
}

// Watch watches the keys for which wants returns true; the first news are their present values. Wants is called with
// the map locked. The caller closes the watcher.
func (b *Map[K, V]) Watch(wants func(K) bool) *Watcher[K, V] {
	w := &Watcher[K, V]{board: b, wants: wants, changed: make(chan struct{}, 1), marked: map[K]struct{}{}, told: map[K]struct{}{}}
	w.C = w.changed
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.values {
		if wants(key) {
			w.mark(key)
		}
	}
	if b.watchers == nil {
		b.watchers = map[*Watcher[K, V]]struct{}{}
	}
	b.watchers[w] = struct{}{}
	return w
}

// Watcher follows a board. It is for one goroutine.
type Watcher[K comparable, V any] struct {
	// C receives when there may be news.
	C <-chan struct{}

	board   *Map[K, V]
	wants   func(K) bool
	changed chan struct{}
	marked  map[K]struct{} // keys with news
	told    map[K]struct{} // keys whose value was news once, and not since that it is gone
}

// Update is a key whose value has changed.
type Update[K comparable, V any] struct {
	Key K
	// Value is the latest value; Gone means that the key has been removed.
	Value V
	Gone  bool
}

// Next returns the changes since the last call, in no order.
func (w *Watcher[K, V]) Next() []Update[K, V] {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	news := make([]Update[K, V], 0, len(w.marked))
	for key := range w.marked {
		value, there := w.board.values[key]
		news = append(news, Update[K, V]{Key: key, Value: value, Gone: !there})
		if there {
			w.told[key] = struct{}{}
		} else {
			delete(w.told, key)
		}
	}
	clear(w.marked)
	return news
}

// Close ends the watching.
func (w *Watcher[K, V]) Close() {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	delete(w.board.watchers, w)
}

// Heartbeat is the interval at which an idle watcher is notified that nothing happened, in [Map.Follow] and elsewhere.
const Heartbeat = 15 * time.Second

// Follow calls tell with the values of the keys for which wants returns true, and with each change, until ctx ends or
// tell fails, and returns the cause. A nil news is a heartbeat.
func (b *Map[K, V]) Follow(ctx context.Context, wants func(K) bool, tell func(*Update[K, V]) error) error {
	w := b.Watch(wants)
	defer w.Close()
	beats := time.NewTicker(Heartbeat)
	defer beats.Stop()
	for {
		select {
		case <-w.C:
			for _, news := range w.Next() {
				if err := tell(&news); err != nil {
					return err
				}
			}
			beats.Reset(Heartbeat)
		case <-beats.C:
			if err := tell(nil); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *Watcher[K, V]) mark(key K) {
	w.marked[key] = struct{}{}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
