package dataset

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// messages reads a conversation. It keeps the members of each message that an input may have, and marks the message as
// input.
func messages(items []any, resolve resolver) ([]json.RawMessage, error) {
	read := make([]json.RawMessage, len(items))
	for i, item := range items {
		m, err := message(item, resolve)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		read[i] = orderedjson.Append(nil, m)
	}
	return read, nil
}

func message(item any, resolve resolver) (*orderedjson.Object, error) {
	given, ok := item.(*orderedjson.Object)
	if !ok {
		return nil, fmt.Errorf("it is a JSON %s: want an object with role and content", orderedjson.Kind(item))
	}
	role, _ := given.Get("role")
	content, err := messageContent(given, role == "user", resolve)
	if err != nil {
		return nil, err
	}
	m := &orderedjson.Object{}
	m.Set("role", role)
	m.Set("content", content)
	m.Set("source", "input")
	switch role {
	case "system", "user":
	case "assistant":
		calls, _ := given.Get("tool_calls")
		if calls != nil {
			read, err := toolCalls(calls)
			if err != nil {
				return nil, fmt.Errorf("tool_calls: %w", err)
			}
			m.Set("tool_calls", read)
		}
	case "tool":
		return m, copyToolResult(m, given)
	default:
		return nil, errors.New("role is missing or unknown: want system, user, assistant or tool")
	}
	return m, nil
}

// blockMembers names for each kind of content the member that it cannot do without.
var blockMembers = map[string]string{
	"text": "text", "reasoning": "reasoning", "image": "image", "audio": "audio", "video": "video", "document": "document", "data": "data",
	"tool_use": "name",
}

// messageContent reads text or a list of blocks. Files that a user's message shows are resolved.
func messageContent(given *orderedjson.Object, ofUser bool, resolve resolver) (any, error) {
	content, _ := given.Get("content")
	if content == nil {
		return nil, errors.New("content is missing: give text, which may be empty, or a list of blocks")
	}
	if _, isText := content.(string); isText {
		return content, nil
	}
	blocks, isList := content.([]any)
	if !isList {
		return nil, fmt.Errorf("content is a JSON %s: want text or a list of blocks", orderedjson.Kind(content))
	}
	shown := make([]any, len(blocks))
	for i, item := range blocks {
		block, _ := item.(*orderedjson.Object)
		if block == nil {
			return nil, fmt.Errorf("content block %d is a JSON %s: want an object with a type", i+1, orderedjson.Kind(item))
		}
		kind, _ := block.Get("type")
		name, _ := kind.(string)
		member, known := blockMembers[name]
		body, has := block.Get(member)
		if !known || !has {
			return nil, fmt.Errorf("content block %d has an unknown type, or lacks the member of its type's name", i+1)
		}
		shown[i] = block
		path, isText := body.(string)
		if ofUser && isText && (name == "image" || name == "audio" || name == "video" || name == "document") {
			file, err := resolve(path)
			if err != nil {
				return nil, fmt.Errorf("content block %d: %w", i+1, err)
			}
			shown[i] = with(block, member, file.String())
		}
	}
	return shown, nil
}

// with returns a copy of an object with another value of a member.
func with(object *orderedjson.Object, name string, value any) *orderedjson.Object {
	changed := &orderedjson.Object{}
	for other, member := range object.All() {
		changed.Set(other, member)
	}
	changed.Set(name, value)
	return changed
}

// toolCalls reads calls of the form {id, function, arguments, type}; vendors' own forms are refused.
func toolCalls(given any) ([]any, error) {
	items, isList := given.([]any)
	if !isList {
		return nil, fmt.Errorf("a JSON %s: want a list", orderedjson.Kind(given))
	}
	calls := make([]any, len(items))
	for i, item := range items {
		call := &orderedjson.Object{}
		from, _ := item.(*orderedjson.Object)
		if from == nil {
			return nil, fmt.Errorf("call %d is a JSON %s: want an object", i+1, orderedjson.Kind(item))
		}
		id, _ := from.Get("id")
		function, _ := from.Get("function")
		arguments, _ := from.Get("arguments")
		kind, typed := from.Get("type")
		if !typed || kind == nil {
			kind = "function"
		}
		_, idOK := id.(string)
		_, functionOK := function.(string)
		_, argumentsOK := arguments.(*orderedjson.Object)
		_, kindOK := kind.(string)
		if !idOK || !functionOK || !argumentsOK || !kindOK {
			return nil, fmt.Errorf("call %d needs id and function as texts and arguments as an object", i+1)
		}
		call.Set("id", id)
		call.Set("function", function)
		call.Set("arguments", arguments)
		call.Set("type", kind)
		calls[i] = call
	}
	return calls, nil
}

// copyToolResult copies the reference of a tool's message to its call, and its error.
func copyToolResult(m, given *orderedjson.Object) error {
	for _, name := range []string{"tool_call_id", "function"} {
		member, _ := given.Get(name)
		if member == nil {
			continue
		}
		if _, isText := member.(string); !isText {
			return fmt.Errorf("%s is a JSON %s: want text", name, orderedjson.Kind(member))
		}
		m.Set(name, member)
	}
	fault, _ := given.Get("error")
	if fault == nil {
		return nil
	}
	object, ok := fault.(*orderedjson.Object)
	if !ok {
		return fmt.Errorf("error is a JSON %s: want an object with type and message", orderedjson.Kind(fault))
	}
	for _, name := range []string{"type", "message"} {
		member, _ := object.Get(name)
		if _, isText := member.(string); !isText {
			return fmt.Errorf("error needs type and message as texts")
		}
	}
	m.Set("error", object)
	return nil
}
