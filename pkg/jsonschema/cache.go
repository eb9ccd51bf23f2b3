package jsonschema

import (
	"container/list"
	"encoding/json"
	"sync"
)

// maxCachedBytes bounds the schema text that a cache holds; compiled schemas take some ten times as much.
const maxCachedBytes = 4 << 20

// Cache keeps compiled schemas by their text, those used last. The zero value is ready to use, also concurrently.
type Cache struct {
	mu     sync.Mutex
	byText map[string]*list.Element // of *Schema, most recently used first
	recent list.List
	bytes  int
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
	c.keep(schema)
	return schema, nil
}

func (c *Cache) lookup(text json.RawMessage) *Schema {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.byText[string(text)]
	if element == nil {
		return nil
	}
	c.recent.MoveToFront(element)
	return element.Value.(*Schema)
}

func (c *Cache) keep(schema *Schema) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byText == nil {
		c.byText = map[string]*list.Element{}
	}
	key := string(schema.text)
	if c.byText[key] != nil { // compiled twice at once
		return
	}
	c.byText[key] = c.recent.PushFront(schema)
	c.bytes += len(key)
	for c.bytes > maxCachedBytes {
		oldest := c.recent.Remove(c.recent.Back()).(*Schema)
		delete(c.byText, string(oldest.text))
		c.bytes -= len(oldest.text)
	}
}
