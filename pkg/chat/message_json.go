package chat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/enum"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/lenientjson"
)

// ParseMessage reads one message of present input: a missing id is created. A message without a role gets the role that
// its fields imply, else `system`. Unknown fields are dropped. The error names each unreadable field.
func ParseMessage(document []byte) (*modelv1.ChatMessage, error) {
	m, err := ParseStoredMessage(document)
	if err == nil {
		ensureID(m)
	}
	return m, err
}

// ParseStoredMessage reads one message of a record: its id stays as it is, also when there is none.
func ParseStoredMessage(document []byte) (*modelv1.ChatMessage, error) {
	o, err := lenientjson.Parse(document)
	if err != nil {
		return nil, err
	}
	m := readMessage(o)
	return m, o.Err()
}

// ParseMessages reads a list of messages as ParseMessage does, and joins the errors of its items.
func ParseMessages(document []byte) ([]*modelv1.ChatMessage, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(document, &items); err != nil {
		return nil, errors.New("must be a list")
	}
	messages := make([]*modelv1.ChatMessage, len(items))
	faults := make([]error, len(items))
	for i, item := range items {
		m, err := ParseMessage(item)
		if err != nil {
			faults[i] = fmt.Errorf("item %d: %w", i, err)
		}
		messages[i] = m
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return messages, nil
}

// ensureID gives a message an id if it has none.
func ensureID(m *modelv1.ChatMessage) {
	if m.GetId() == "" {
		m.Id = NewID()
	}
}

func readMessage(o *lenientjson.Object) *modelv1.ChatMessage {
	m := &modelv1.ChatMessage{
		Id:           o.Text("id"),
		Role:         readRole(o),
		Content:      readContent(o, "content"),
		MetadataJson: o.RawObject("metadata"),
		InternalJson: o.Any("internal"),
	}
	if source := o.String("source"); source != nil {
		var ok bool
		if m.Source, ok = sourceNames.value(*source); !ok {
			o.Fail("source", "is no source of messages: %q", *source)
		}
	}
	switch m.Role {
	case modelv1.Role_ROLE_USER:
		m.ToolCallIds, _ = o.Strings("tool_call_id")
	case modelv1.Role_ROLE_ASSISTANT:
		m.Model = o.Text("model")
		calls, listed := o.Objects("tool_calls")
		for _, call := range calls {
			m.ToolCalls = append(m.ToolCalls, readCall(call))
		}
		m.ToolCallsRemoved = listed && len(calls) == 0
	case modelv1.Role_ROLE_TOOL:
		if id := o.String("tool_call_id"); id != nil {
			m.ToolCallIds = []string{*id}
		}
		m.Function = o.Text("function")
		m.Error = readToolError(o)
	case modelv1.Role_ROLE_SYSTEM, modelv1.Role_ROLE_UNSPECIFIED: // nothing of their own
	}
	return m
}

// readRole reads the role, or infers it from the fields that only one role has.
func readRole(o *lenientjson.Object) modelv1.Role {
	if o.Has("role") {
		role, ok := roleNames.value(o.RequireText("role"))
		if !ok {
			o.Fail("role", "must be system, user, assistant or tool")
		}
		return role
	}
	_, callIDIsText := lenientjson.AsText(o.Raw("tool_call_id"))
	switch {
	case o.Has("tool_calls") || o.Has("model"):
		return modelv1.Role_ROLE_ASSISTANT
	case o.Has("function") || o.Has("error") || o.Has("tool_error") || callIDIsText:
		return modelv1.Role_ROLE_TOOL
	case o.Raw("tool_call_id") != nil:
		return modelv1.Role_ROLE_USER
	default:
		return modelv1.Role_ROLE_SYSTEM
	}
}

// readToolError reads `error`, or the bare text under `tool_error` of older records.
func readToolError(o *lenientjson.Object) *toolv1.ToolCallError {
	if legacy := o.Text("tool_error"); legacy != "" {
		return &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, Message: legacy}
	}
	e := o.Object("error")
	if e == nil {
		return nil
	}
	kind, ok := toolErrorNames.value(e.RequireText("type"))
	if !ok {
		e.Fail("type", "is no type of tool error: %q", e.Text("type"))
	}
	return &toolv1.ToolCallError{Type: kind, Message: e.RequireText("message")}
}

func readCall(o *lenientjson.Object) *toolv1.ToolCall {
	o.Require("arguments")
	call := &toolv1.ToolCall{
		Id:            o.RequireText("id"),
		Function:      o.RequireText("function"),
		ArgumentsJson: o.RawObject("arguments"),
		ParseError:    o.String("parse_error"),
		Type:          toolv1.ToolCallType_TOOL_CALL_TYPE_FUNCTION,
		InternalJson:  o.Any("internal"),
	}
	if kind := o.String("type"); kind != nil {
		var ok bool
		if call.Type, ok = callTypeNames.value(*kind); !ok {
			o.Fail("type", "must be function or custom")
		}
	}
	if view := o.Object("view"); view != nil {
		call.View = &toolv1.ToolCallContent{
			Title: view.Text("title"), Format: requireEnum[toolv1.ViewFormat](view, "format"), Content: view.Text("content"),
		}
	}
	return call
}

// MessageJSON writes one message.
func MessageJSON(m *modelv1.ChatMessage) json.RawMessage {
	var w jsonwrite.Writer
	writeMessage(&w, m)
	return w.Bytes()
}

// MessagesJSON writes a list of messages.
func MessagesJSON(messages []*modelv1.ChatMessage) json.RawMessage {
	var w jsonwrite.Writer
	w.BeginList()
	for _, m := range messages {
		writeMessage(&w, m)
	}
	w.EndList()
	return w.Bytes()
}

func writeMessage(w *jsonwrite.Writer, m *modelv1.ChatMessage) {
	w.BeginObject()
	w.TextUnlessEmpty("id", m.GetId())
	w.Key("content")
	writeContent(w, m.GetContent())
	w.TextUnlessEmpty("source", sourceNames[m.GetSource()])
	w.RawUnlessEmpty("metadata", m.GetMetadataJson())
	w.RawUnlessEmpty("internal", m.GetInternalJson())
	w.TextMember("role", roleNames[m.GetRole()])
	switch m.GetRole() {
	case modelv1.Role_ROLE_USER:
		if ids := m.GetToolCallIds(); len(ids) > 0 {
			w.TextList("tool_call_id", ids)
		}
	case modelv1.Role_ROLE_ASSISTANT:
		writeCalls(w, m)
		w.TextUnlessEmpty("model", m.GetModel())
	case modelv1.Role_ROLE_TOOL:
		if ids := m.GetToolCallIds(); len(ids) > 0 {
			w.TextMember("tool_call_id", ids[0])
		}
		w.TextUnlessEmpty("function", m.GetFunction())
		if e := m.GetError(); e != nil {
			w.Key("error")
			w.BeginObject()
			w.TextMember("type", ToolErrorName(e.GetType()))
			w.TextMember("message", e.GetMessage())
			w.EndObject()
		}
	case modelv1.Role_ROLE_SYSTEM, modelv1.Role_ROLE_UNSPECIFIED: // nothing of their own
	}
	w.EndObject()
}

func writeCalls(w *jsonwrite.Writer, m *modelv1.ChatMessage) {
	if len(m.GetToolCalls()) == 0 && !m.GetToolCallsRemoved() {
		return
	}
	w.Key("tool_calls")
	w.BeginList()
	for _, call := range m.GetToolCalls() {
		writeCall(w, call)
	}
	w.EndList()
}

func writeCall(w *jsonwrite.Writer, call *toolv1.ToolCall) {
	w.BeginObject()
	w.TextMember("id", call.GetId())
	w.TextMember("function", call.GetFunction())
	w.RawMember("arguments", cmp.Or(call.GetArgumentsJson(), "{}"))
	w.OptText("parse_error", call.ParseError)
	w.RawUnlessEmpty("internal", call.GetInternalJson())
	if view := call.GetView(); view != nil {
		w.Key("view")
		w.BeginObject()
		w.TextUnlessEmpty("title", view.GetTitle())
		w.TextMember("format", cmp.Or(enum.Word(view.GetFormat()), "text"))
		w.TextMember("content", view.GetContent())
		w.EndObject()
	}
	w.TextMember("type", cmp.Or(callTypeNames[call.GetType()], "function"))
	w.EndObject()
}
