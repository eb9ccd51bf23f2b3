package cache

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a Cache of one process. When it is full, the entries that were not asked for longest go first.
type Memory struct {
	maxBytes int64

	mu      sync.Mutex
	bytes   int64
	entries map[Key]*list.Element
	recent  *list.List // of *entry, the one asked for last first
}

var _ Cache = (*Memory)(nil)

type entry struct {
	info  Info
	value []byte
}

// NewMemory returns an empty cache for values of up to maxBytes together. A value that is larger by itself is not kept.
func NewMemory(maxBytes int64) *Memory {
	return &Memory{maxBytes: maxBytes, entries: map[Key]*list.Element{}, recent: list.New()}
}

// Get implements Cache.
func (m *Memory) Get(_ context.Context, key Key) (value []byte, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	element, ok := m.entries[key]
	if !ok {
		return nil, false, nil
	}
	e, _ := element.Value.(*entry)
	if e.info.Expired(time.Now()) {
		m.drop(element)
		return nil, false, nil
	}
	m.recent.MoveToFront(element)
	return e.value, true, nil
}

// Put implements Cache.
func (m *Memory) Put(_ context.Context, key Key, value []byte, expires time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.entries[key]; ok {
		m.drop(old)
	}
	size := int64(len(value))
	if size > m.maxBytes {
		return nil
	}
	for m.bytes+size > m.maxBytes {
		m.drop(m.recent.Back())
	}
	m.entries[key] = m.recent.PushFront(&entry{info: Info{Key: key, Size: size, Expires: expires}, value: value})
	m.bytes += size
	return nil
}

// List implements Cache.
func (m *Memory) List(_ context.Context, prefix string) ([]Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var infos []Info
	for key, element := range m.entries {
		if strings.HasPrefix(key.Group, prefix) {
			e, _ := element.Value.(*entry)
			infos = append(infos, e.info)
		}
	}
	slices.SortFunc(infos, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Key.Group, b.Key.Group), cmp.Compare(a.Key.ID, b.Key.ID))
	})
	return infos, nil
}

// Delete implements Cache.
func (m *Memory) Delete(_ context.Context, keys ...Key) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	removed := 0
	for _, key := range keys {
		if element, ok := m.entries[key]; ok {
			m.drop(element)
			removed++
		}
	}
	return removed, nil
}

func (m *Memory) drop(element *list.Element) {
	e, _ := m.recent.Remove(element).(*entry)
	delete(m.entries, e.info.Key)
	m.bytes -= e.info.Size
}
