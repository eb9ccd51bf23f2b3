package journal

import (
	"crypto/sha256"
	"fmt"
	"math"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

const (
	// largeContent is the size from which a content is stored apart, by its hash.
	largeContent = 4 << 10
	// maxUnpacked bounds the size of an unpacked content. It is the largest possible message rather than the bound of
	// new events, so that events of earlier versions can be read.
	maxUnpacked = math.MaxInt32
)

// Packed is an event as stores hold it: without the values of the row's columns, and without a content that another
// event holds.
type Packed struct {
	// Body is the event. A large content is left out of it.
	Body []byte
	// Hash names the content that was left out; nil when it was not.
	Hash []byte
	// Content is that content, compressed. Equal contents of one project have one hash.
	Content []byte
	// Same is [Entry].Same.
	Same int64
}

// Pack encodes an entry of a project's journal in its stored form. It does not change the event. It fails with
// REQUEST_TOO_LARGE if the event has more than [bound.JournalEventBytes].
func Pack(project string, e Entry) (Packed, error) {
	event := withoutCompletion(withoutColumns(e.Event))
	p := Packed{Same: e.Same}
	size := proto.Size(event)
	if e.Same == 0 && size > bound.JournalEventBytes {
		event.Seq = e.Event.GetSeq()
		return Packed{}, tooLarge(event, size, bound.JournalEventBytes)
	}
	if e.Same != 0 || size > largeContent {
		var content proto.Message
		event, content = withoutContent(event)
		if e.Same == 0 && content != nil {
			if err := p.setContent(project, event, content); err != nil {
				return Packed{}, err
			}
		}
	}
	var err error
	if p.Body, err = proto.Marshal(event); err != nil {
		return Packed{}, fmt.Errorf("journal: pack event %d: %w", e.Event.GetSeq(), err)
	}
	return p, nil
}

// setContent stores a content separately, or puts it back into the event if it is small after all.
func (p *Packed) setContent(project string, event *agentv1.Event, content proto.Message) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(content)
	if err != nil {
		return fmt.Errorf("journal: pack content: %w", err)
	}
	if len(b) <= largeContent {
		kind, field := contentField(event)
		kind.Set(field, protoreflect.ValueOfMessage(content.ProtoReflect()))
		return nil
	}
	sum := sha256.New()
	sum.Write([]byte(project + "\n")) // contents of two projects never meet
	sum.Write(b)
	p.Hash, p.Content = sum.Sum(nil), compress(b)
	return nil
}

// Unpack turns a stored body back into its event; the caller sets journal, seq and epoch.
func Unpack(body []byte) (*agentv1.Event, error) {
	event := &agentv1.Event{}
	if err := proto.Unmarshal(body, event); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	complete(event)
	return event, nil
}

// PutContent puts a separately stored content into an unpacked event.
func PutContent(event *agentv1.Event, compressed []byte) error {
	b, err := decompress(compressed)
	if err != nil {
		return fmt.Errorf("%w: its content: %w", ErrUnreadable, err)
	}
	kind, field := contentField(event)
	if field == nil {
		return nil // a kind that this version does not know; its bytes are carried through
	}
	if err := proto.Unmarshal(b, kind.Mutable(field).Message().Interface()); err != nil {
		return fmt.Errorf("%w: its content: %w", ErrUnreadable, err)
	}
	complete(event)
	return nil
}

// PutSame puts the content of the earlier event source into an unpacked event: the message that it adds, or the call
// that it begins.
func PutSame(event, source *agentv1.Event) {
	source = sameOffloaded(event, source)
	switch kind := event.GetKind().(type) {
	case *agentv1.Event_MessageAdded:
		kind.MessageAdded.Content = MessageOf(source)
	case *agentv1.Event_ToolIntent:
		for _, call := range MessageOf(source).GetToolCalls() {
			if call.GetId() == kind.ToolIntent.GetCallId() {
				kind.ToolIntent.Content = call
			}
		}
	}
}

// MessageOf returns the message that an outcome leads to: the first choice of a model's response, or the message with a
// tool's result. It is nil for other events. The message shares its parts with the event.
func MessageOf(e *agentv1.Event) *modelv1.ChatMessage {
	switch kind := e.GetKind().(type) {
	case *agentv1.Event_ModelOutcome:
		if choices := kind.ModelOutcome.GetContent().GetOutput().GetChoices(); len(choices) > 0 {
			return choices[0].GetMessage()
		}
	case *agentv1.Event_ToolOutcome:
		result := kind.ToolOutcome.GetContent().GetResult()
		return &modelv1.ChatMessage{
			Id:          kind.ToolOutcome.GetMessageId(),
			Role:        modelv1.Role_ROLE_TOOL,
			Content:     result.GetContent(),
			ToolCallIds: []string{kind.ToolOutcome.GetCallId()},
			Function:    kind.ToolOutcome.GetFunction(),
			Error:       result.GetError(),
		}
	}
	return nil
}

// withoutCompletion copies the event of a model's response without its completion, if the completion is the text of its
// message: a text is stored once.
func withoutCompletion(e *agentv1.Event) *agentv1.Event {
	outcome := e.GetModelOutcome()
	output := outcome.GetContent().GetOutput()
	if output.GetCompletion() == "" || output.GetCompletion() != chat.Text(chat.FirstMessage(output)) {
		return e
	}
	output = shallowCopy(output)
	output.Completion = ""
	content := shallowCopy(outcome.GetContent())
	content.Output = output
	outcome = shallowCopy(outcome)
	outcome.Content = content
	e.Kind = &agentv1.Event_ModelOutcome{ModelOutcome: outcome}
	return e
}

// complete restores the fields that withoutCompletion removed.
func complete(e *agentv1.Event) {
	if output := e.GetModelOutcome().GetContent().GetOutput(); output != nil {
		chat.CompleteOutput(output)
	}
}

// shallowCopy copies a message; the values of its fields are shared.
func shallowCopy[M proto.Message](m M) M {
	from := m.ProtoReflect()
	to := from.New()
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(f, v)
		return true
	})
	copied, _ := to.Interface().(M) // it is made of the same type
	return copied
}

// withoutColumns copies an event without the values that are stored in columns. The kind is shared.
func withoutColumns(e *agentv1.Event) *agentv1.Event {
	return &agentv1.Event{
		Time:         e.GetTime(),
		Actor:        e.GetActor(),
		Id:           e.GetId(),
		Span:         e.GetSpan(),
		Features:     e.GetFeatures(),
		Critical:     e.GetCritical(),
		WorkingStart: e.GetWorkingStart(),
		Offloaded:    e.GetOffloaded(),
		Kind:         e.GetKind(),
	}
}

// withoutContent returns a copy of the event without the content of its kind, and the content, or nil if there is none.
func withoutContent(e *agentv1.Event) (*agentv1.Event, proto.Message) {
	kind, field := contentField(e)
	if field == nil || !kind.Has(field) {
		return e, nil
	}
	rest := kind.New()
	kind.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Number() != field.Number() {
			rest.Set(f, v)
		}
		return true
	})
	c := withoutColumns(e)
	c.Kind = nil // else Set would change the wrapper that e shares
	c.ProtoReflect().Set(kindField(e.ProtoReflect()), protoreflect.ValueOfMessage(rest))
	return c, kind.Get(field).Message().Interface()
}

// contentField returns the message of the event's kind and its field of content that is a message. The field is nil if
// the kind has none or is unknown.
func contentField(e *agentv1.Event) (protoreflect.Message, protoreflect.FieldDescriptor) {
	m := e.ProtoReflect()
	kind := kindField(m)
	if kind == nil {
		return nil, nil
	}
	message := m.Get(kind).Message()
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.Message() != nil && !f.IsList() && !f.IsMap() && redact.IsContent(f) {
			return message, f
		}
	}
	return message, nil
}

func kindField(m protoreflect.Message) protoreflect.FieldDescriptor {
	return m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
}

// The encoder and decoder are used for whole bodies only, which is safe for concurrent use.
var (
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxUnpacked))
)

func compress(b []byte) []byte { return encoder.EncodeAll(b, nil) }

// Decompress turns a stored content into the text that it was.
func Decompress(b []byte) ([]byte, error) { return decompress(b) }

func decompress(b []byte) ([]byte, error) { return decoder.DecodeAll(b, nil) }
