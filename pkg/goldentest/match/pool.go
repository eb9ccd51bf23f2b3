package match

import (
	"fmt"
	"strings"
)

// messageMarker names the markers that represent the ids of pooled messages.
const messageMarker = "message:"

// Messages returns a copy of an expectation in which the keys of its `message_pool` are replaced by the messages, and
// the pool itself is removed. The id of each message becomes a marker of its key: under one Matcher messages with the
// same key must have the same id, and messages with different keys different ids, with arbitrary ids. A key `m3#2` is
// the message `m3` with other content, so both have one id.
//
// Only lists whose items are all keys of the pool are lists of messages. An expectation without a pool is returned
// unchanged. A pool that does not contain messages is an error.
func Messages(expect any) (any, error) {
	object, ok := expect.(map[string]any)
	if !ok || object["message_pool"] == nil {
		return expect, nil
	}
	pool, ok := object["message_pool"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("message_pool is not an object")
	}
	messages := make(map[string]any, len(pool))
	for key, pooled := range pool {
		recorded, ok := pooled.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("message_pool: %s is not a message", key)
		}
		base, _, _ := strings.Cut(key, "#")
		message := make(map[string]any, len(recorded)+1)
		for name, member := range recorded {
			message[name] = member
		}
		message["id"] = "<" + messageMarker + base + ">"
		messages[key] = message
	}
	resolved := make(map[string]any, len(object))
	for name, member := range object {
		if name != "message_pool" {
			resolved[name] = resolve(member, messages)
		}
	}
	return resolved, nil
}

func resolve(value any, messages map[string]any) any {
	switch value := value.(type) {
	case map[string]any:
		object := make(map[string]any, len(value))
		for name, member := range value {
			object[name] = resolve(member, messages)
		}
		return object
	case []any:
		if list, ok := resolveKeys(value, messages); ok {
			return list
		}
		list := make([]any, len(value))
		for i, item := range value {
			list[i] = resolve(item, messages)
		}
		return list
	default:
		return value
	}
}

func resolveKeys(keys []any, messages map[string]any) ([]any, bool) {
	list := make([]any, len(keys))
	for i, key := range keys {
		name, ok := key.(string)
		if !ok || messages[name] == nil {
			return nil, false
		}
		list[i] = messages[name]
	}
	return list, true
}
