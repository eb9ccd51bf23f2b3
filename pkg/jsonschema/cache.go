package jsonschema

import (
	"encoding/json"
	"sync"

	"github.com/evalfleet/evalfleet/pkg/lru"
)

// maxCachedBytes bounds the schema text that a cache holds; compiled schemas take some ten times as much.
const maxCachedBytes = 4 << 20

// Cache caches compiled schemas by their text, the most recently used ones. The zero value is ready to use. It is safe
// for concurrent use.
type Cache struct {
	mu     sync.Mutex
	byText *lru.Cache[string, *Schema]
}

// Compile is the package's Compile, done once per text while it is kept. Failures are not kept.
func (c *Cache) Compile(text json.RawMessage) (*Schema, error) {
	if schema := c.lookup(text); schema != nil {
		return schema, nil
	}
	schema, err := Compile(text)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byText.Put(string(schema.text), schema, int64(len(schema.text)))
	return schema, nil
}

func (c *Cache) lookup(text json.RawMessage) *Schema {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byText == nil {
		c.byText = lru.New[string, *Schema](maxCachedBytes)
	}
	schema, _ := c.byText.Get(string(text))
	return schema
}
