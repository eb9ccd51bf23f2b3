package rest

import (
	"bytes"
	"io"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// eventStream is the media type of server-sent events (WHATWG HTML, section 9.2). A client that accepts it receives a
// stream as events; all others receive one JSON object per line.
const eventStream = "text/event-stream"

// events writes each message of a stream as one event: its cursor as `id`, its JSON as `data`. A message that has only
// a cursor becomes a comment, which keeps the connection alive.
type events struct{ json runtime.Marshaler }

// ContentType is that of server-sent events.
func (e *events) ContentType(any) string { return eventStream }

// StreamContentType is that of server-sent events.
func (e *events) StreamContentType(any) string { return eventStream }

// Delimiter is empty: an event includes its terminator.
func (e *events) Delimiter() []byte { return nil }

// Marshal returns one event. The mapping passes a stream's messages as {"result": message} and its end as {"error":
// status}.
func (e *events) Marshal(v any) ([]byte, error) {
	var kind string
	var m proto.Message
	switch v := v.(type) {
	case map[string]any:
		m, _ = v["result"].(proto.Message)
	case map[string]proto.Message:
		if m = v["error"]; m != nil {
			kind = "error"
		}
	case proto.Message:
		kind, m = "error", v
	}
	var out bytes.Buffer
	cursor, more := cursorOf(m)
	if cursor != "" {
		out.WriteString("id: " + cursor + "\n")
	}
	if m == nil || !more && kind == "" {
		out.WriteString(": nothing new\n\n")
		return out.Bytes(), nil
	}
	if kind != "" {
		out.WriteString("event: " + kind + "\n")
	}
	body, err := e.json.Marshal(m)
	if err != nil {
		return nil, err
	}
	out.WriteString("data: ")
	out.Write(bytes.ReplaceAll(body, []byte("\n"), []byte("\ndata: ")))
	out.WriteString("\n\n")
	return out.Bytes(), nil
}

// cursorOf returns the message's cursor, and whether any other field is set.
func cursorOf(m proto.Message) (cursor string, more bool) {
	if m == nil {
		return "", false
	}
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Name() == "cursor" && f.Kind() == protoreflect.StringKind {
			cursor = v.String()
		} else {
			more = true
		}
		return true
	})
	return cursor, more
}

// Unmarshal, NewDecoder and NewEncoder are those of JSON: only answers are events.
func (e *events) Unmarshal(b []byte, v any) error        { return e.json.Unmarshal(b, v) }
func (e *events) NewDecoder(r io.Reader) runtime.Decoder { return e.json.NewDecoder(r) }
func (e *events) NewEncoder(w io.Writer) runtime.Encoder { return e.json.NewEncoder(w) }
