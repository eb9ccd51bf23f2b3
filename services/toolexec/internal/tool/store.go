package tool

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/toolcall"
)

// Store is the part of a run's store that a tool declared, as one call sees it: the entries that came with the call,
// and the call's own changes. The service stores nothing of it; the changes are part of the result. It is safe for
// concurrent use.
type Store struct {
	declared []string
	mu       sync.Mutex
	entries  map[string]json.RawMessage
	changes  map[string]*toolv1.StoreChange
}

// NewStore returns a store with the entries, JSON by key, that the declared keys cover. A declared key may end in `*`,
// which matches any suffix.
func NewStore(declared []string, entries map[string]string) *Store {
	s := &Store{declared: declared, entries: map[string]json.RawMessage{}, changes: map[string]*toolv1.StoreChange{}}
	for key, value := range entries {
		if s.covers(key) {
			s.entries[key] = json.RawMessage(value)
		}
	}
	return s
}

// Get returns the entry and whether there is one.
func (s *Store) Get(key string) (value json.RawMessage, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok = s.entries[key]
	return value, ok
}

// Entries returns the current entries.
func (s *Store) Entries() map[string]json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.entries)
}

// Set replaces an entry. It fails for a key that the tool did not declare.
func (s *Store) Set(key string, value json.RawMessage) error {
	return s.change(key, value, &toolv1.StoreChange{Key: key, ValueJson: new(string(value))})
}

// Delete removes an entry. It fails for a key that the tool did not declare.
func (s *Store) Delete(key string) error {
	return s.change(key, nil, &toolv1.StoreChange{Key: key})
}

// Apply applies changes from outside, all or none. It fails for a key that the tool did not declare, and for a value
// that is not valid JSON.
func (s *Store) Apply(changes []*toolv1.StoreChange) error {
	for _, change := range changes {
		if !s.covers(change.GetKey()) {
			return fmt.Errorf("it changes the store's entry %q, which the tool did not declare", change.GetKey())
		}
		if change.ValueJson != nil && !json.Valid([]byte(change.GetValueJson())) {
			return fmt.Errorf("the new value of the store's entry %q is no JSON", change.GetKey())
		}
	}
	for _, change := range changes {
		var value json.RawMessage
		if change.ValueJson != nil {
			value = json.RawMessage(change.GetValueJson())
		}
		if err := s.change(change.GetKey(), value, change); err != nil {
			return err
		}
	}
	return nil
}

// Changes returns the sets and deletions, by key: of several changes of a key, the last.
func (s *Store) Changes() []*toolv1.StoreChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changes []*toolv1.StoreChange
	for _, key := range slices.Sorted(maps.Keys(s.changes)) {
		changes = append(changes, s.changes[key])
	}
	return changes
}

func (s *Store) change(key string, value json.RawMessage, change *toolv1.StoreChange) error {
	if !s.covers(key) {
		return fmt.Errorf("the tool changes the store's entry %q, which it did not declare", key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if value == nil {
		delete(s.entries, key)
	} else {
		s.entries[key] = value
	}
	s.changes[key] = change
	return nil
}

func (s *Store) covers(key string) bool { return toolcall.Covers(s.declared, key) }
