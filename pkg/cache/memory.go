package cache

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/lru"
)

// Memory is a Cache of one process. When it is full, the least recently used entries are evicted.
type Memory struct {
	most    int64
	mu      sync.Mutex
	entries *lru.Cache[Key, *entry]
}

var _ Cache = (*Memory)(nil)

type entry struct {
	info  Info
	value []byte
}

// NewMemory returns an empty cache for values of up to maxBytes together. A value that is larger by itself is not kept.
func NewMemory(maxBytes int64) *Memory {
	return &Memory{most: maxBytes, entries: lru.New[Key, *entry](maxBytes)}
}

// Get implements Cache.
func (m *Memory) Get(_ context.Context, key Key) (value []byte, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries.Get(key)
	if !ok {
		return nil, false, nil
	}
	if e.info.Expired(time.Now()) {
		m.entries.Remove(key)
		return nil, false, nil
	}
	return e.value, true, nil
}

// Put implements Cache.
func (m *Memory) Put(_ context.Context, key Key, value []byte, expires time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := int64(len(value))
	m.entries.Put(key, &entry{info: Info{Key: key, Size: size, Expires: expires}, value: value}, size)
	if size > m.most {
		return ErrNotKept
	}
	return nil
}

// List implements Cache. It looks at all entries first.
func (m *Memory) List(_ context.Context, prefix string, after Key) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for _, info := range m.following(prefix, after) {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (m *Memory) following(prefix string, after Key) []Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	var infos []Info
	for key, e := range m.entries.All() {
		if strings.HasPrefix(key.Group, prefix) && key.Compare(after) > 0 {
			infos = append(infos, e.info)
		}
	}
	slices.SortFunc(infos, func(a, b Info) int { return a.Key.Compare(b.Key) })
	return infos
}

// Delete implements Cache.
func (m *Memory) Delete(_ context.Context, keys ...Key) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	removed := 0
	for _, key := range keys {
		if _, ok := m.entries.Remove(key); ok {
			removed++
		}
	}
	return removed, nil
}
