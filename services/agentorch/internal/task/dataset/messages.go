package dataset

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
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
		given, _ := item.(*orderedjson.Object)
		if given == nil {
			return nil, fmt.Errorf("content block %d is a JSON %s: want an object with a type", i+1, orderedjson.Kind(item))
		}
		block, err := contentBlock(given, ofUser, resolve)
		if err != nil {
			return nil, fmt.Errorf("content block %d %w", i+1, err)
		}
		shown[i] = block
	}
	return shown, nil
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
		fault, _ := from.Get("parse_error")
		_, idOK := id.(string)
		_, functionOK := function.(string)
		_, argumentsOK := arguments.(*orderedjson.Object)
		_, faultOK := fault.(string)
		if !idOK || !functionOK || !argumentsOK || fault != nil && !faultOK {
			return nil, fmt.Errorf("call %d needs id and function as texts and arguments as an object; parse_error may be a text", i+1)
		}
		if kind != "function" && kind != "custom" {
			return nil, fmt.Errorf("call %d has an unknown type: want function or custom", i+1)
		}
		call.Set("id", id)
		call.Set("function", function)
		call.Set("arguments", arguments)
		call.Set("type", kind)
		if fault != nil {
			call.Set("parse_error", fault)
		}
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
	if kind, _ := object.Get("type"); kind != chat.ToolErrorName(chat.ToolErrorType(fmt.Sprint(kind))) {
		return fmt.Errorf("error has the unknown type %q", kind)
	}
	m.Set("error", object)
	return nil
}
