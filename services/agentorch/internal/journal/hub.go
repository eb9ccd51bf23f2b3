package journal

import "sync"

// Hub wakes subscribers by topic within one process. The zero value is ready; its methods are safe for concurrent use.
type Hub struct {
	mu     sync.RWMutex
	topics map[string]map[*Subscription]struct{}
}

// Subscription wakes one subscriber. Close it.
type Subscription struct {
	// C receives a value when there may be news. It buffers one wake-up, so that none is lost while the subscriber is
	// busy.
	C <-chan struct{}

	wake  chan struct{}
	topic string
	hub   *Hub
}

// Subscribe returns a subscription to a topic.
func (h *Hub) Subscribe(topic string) *Subscription {
	wake := make(chan struct{}, 1)
	s := &Subscription{C: wake, wake: wake, topic: topic, hub: h}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.topics == nil {
		h.topics = map[string]map[*Subscription]struct{}{}
	}
	if h.topics[topic] == nil {
		h.topics[topic] = map[*Subscription]struct{}{}
	}
	h.topics[topic][s] = struct{}{}
	return s
}

// Close ends the subscription. It may be called more than once.
func (s *Subscription) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.topics[s.topic], s)
	if len(h.topics[s.topic]) == 0 {
		delete(h.topics, s.topic)
	}
}

// Notify wakes the subscribers of a topic and never blocks.
func (h *Hub) Notify(topic string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for s := range h.topics[topic] {
		select {
		case s.wake <- struct{}{}:
		default: // it has not taken the last one yet
		}
	}
}
