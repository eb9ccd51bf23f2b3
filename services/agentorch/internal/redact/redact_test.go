package redact_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	optionsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/options/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

const (
	secret = "canary"
	open   = "finch"
)

// shown are the messages that viewers without the right to content get.
func shown() []proto.Message {
	return []proto.Message{&agentv1.Event{}, &agentv1.Run{}, &agentv1.Eval{}, &agentv1.EvalSample{}, &agentv1.RunNote{}, &agentv1.InboxItem{}}
}

// Every field of text or bytes declares whether it is content, so a new field needs a decision about who may see it.
func TestEveryTextIsContentOrPlain(t *testing.T) {
	t.Parallel()
	seen := map[protoreflect.FullName]bool{}
	var walk func(m protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] || strings.HasPrefix(string(m.FullName()), "google.") {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			isText, value := text(f), f
			if f.IsMap() {
				isText, value = text(f.MapKey()) || text(f.MapValue()), f.MapValue()
			}
			plain, _ := proto.GetExtension(f.Options(), optionsv1.E_Plain).(bool)
			assert.False(t, plain && redact.IsContent(f), "%s is content and plain", f.FullName())
			assert.False(t, plain && !isText, "%s is plain, and no text", f.FullName())
			assert.False(t, isText && !plain && !redact.IsContent(f), "%s is a text: give it the option `content` or `plain`", f.FullName())
			if value.Message() != nil && !redact.IsContent(f) {
				walk(value.Message())
			}
		}
	}
	for _, m := range shown() {
		walk(m.ProtoReflect().Descriptor())
	}
	assert.Greater(t, len(seen), 80)
}

func text(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind
}

// Content is reachable only through content fields: the messages that hold a conversation, a call or a file are reached
// by fields of content alone.
func TestWhatIsSaidIsReachedByContentAlone(t *testing.T) {
	t.Parallel()
	says := map[protoreflect.FullName]bool{}
	for _, m := range []proto.Message{
		&modelv1.ChatMessage{}, &modelv1.ModelOutput{}, &modelv1.ModelCall{}, &toolv1.ToolCall{}, &toolv1.ToolResult{}, &sandboxv1.ExecSpec{}, &sandboxv1.ExecResult{},
		&agentv1.Sample{}, &agentv1.Target{}, &agentv1.InfoContent{},
	} {
		says[m.ProtoReflect().Descriptor().FullName()] = true
	}
	seen := map[protoreflect.FullName]bool{}
	var walk func(m protoreflect.MessageDescriptor, path string)
	walk = func(m protoreflect.MessageDescriptor, path string) {
		assert.False(t, says[m.FullName()], "%s is what was said, and no content", path)
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if redact.IsContent(f) {
				continue
			}
			value := f
			if f.IsMap() {
				value = f.MapValue()
			}
			if value.Message() != nil {
				walk(value.Message(), path+"."+string(f.Name()))
			}
		}
	}
	for _, m := range shown() {
		walk(m.ProtoReflect().Descriptor(), string(m.ProtoReflect().Descriptor().Name()))
	}
}

func TestWithoutContentWhatHappenedStays(t *testing.T) {
	t.Parallel()
	var all []protoreflect.Message
	for _, m := range shown()[1:] {
		all = append(all, full(m.ProtoReflect().New(), nil))
	}
	kinds := (&agentv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range kinds.Len() {
		all = append(all, full((&agentv1.Event{}).ProtoReflect(), kinds.Get(i)))
	}
	for _, m := range all {
		before, err := protojson.Marshal(m.Interface())
		require.NoError(t, err)
		require.Contains(t, string(before), open)
		bare := redact.Content(m.Interface())
		after, err := protojson.Marshal(bare)
		require.NoError(t, err)
		assert.NotContains(t, string(after), secret)
		assert.Equal(t, strings.Count(string(before), open), strings.Count(string(after), open), "%s", after)
		again, err := protojson.Marshal(m.Interface())
		require.NoError(t, err)
		assert.Equal(t, canonical(t, before), canonical(t, again), "the original stays as it is")
		if e, isEvent := bare.(*agentv1.Event); isEvent && e.GetKind() == nil {
			assert.NotNil(t, m.Interface().(*agentv1.Event).GetDelta(), "the kind stays")
		}
	}
}

// canonical is JSON without the spaces that protojson varies.
func canonical(t *testing.T, b []byte) string {
	t.Helper()
	return strings.ReplaceAll(string(b), " ", "")
}

// full returns m with a value in every field: the secret in every text of content, and another word in every other
// text. Of a oneof it sets the given field, or the first.
func full(m protoreflect.Message, kind protoreflect.FieldDescriptor) protoreflect.Message {
	fill(m, kind, open, 0)
	return m
}

func fill(m protoreflect.Message, kind protoreflect.FieldDescriptor, word string, depth int) {
	if depth > 12 || strings.HasPrefix(string(m.Descriptor().FullName()), "google.") {
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if one := f.ContainingOneof(); one != nil && !one.IsSynthetic() && f != kind && (m.WhichOneof(one) != nil || kind != nil && kind.ContainingOneof() == one) {
			continue
		}
		word := word
		if redact.IsContent(f) {
			word = secret
		}
		recursive := f.Message() != nil && f.Message().FullName() == m.Descriptor().FullName()
		switch {
		case recursive && depth > 3:
		case f.IsMap():
			entries, value := m.Mutable(f).Map(), m.Mutable(f).Map().NewValue()
			if f.MapValue().Message() != nil {
				fill(value.Message(), nil, word, depth+1)
			} else {
				value = scalar(f.MapValue(), word, value)
			}
			entries.Set(scalar(f.MapKey(), word, f.MapKey().Default()).MapKey(), value)
		case f.IsList() && f.Message() != nil:
			fill(m.Mutable(f).List().AppendMutable().Message(), nil, word, depth+1)
		case f.IsList():
			m.Mutable(f).List().Append(scalar(f, word, m.Mutable(f).List().NewElement()))
		case f.Message() != nil:
			fill(m.Mutable(f).Message(), nil, word, depth+1)
		default:
			m.Set(f, scalar(f, word, m.NewField(f)))
		}
	}
}

// scalar is a value of a field: the word in a text, and else zero.
func scalar(f protoreflect.FieldDescriptor, word string, zero protoreflect.Value) protoreflect.Value {
	switch f.Kind() { //nolint:exhaustive // all other kinds are zero
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(word)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0}) // its base64 is no word
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	}
	return zero
}

// A replica may hold events of a later version, whose fields it does not know.
func TestFieldsThatAreNotKnownAreLeftOut(t *testing.T) {
	t.Parallel()
	unknown, err := proto.Marshal(&agentv1.Info{Source: secret}) // a field that a duration has not
	require.NoError(t, err)
	e := &agentv1.Event{Seq: 3, WorkingStart: durationpb.New(1)}
	e.GetWorkingStart().ProtoReflect().SetUnknown(unknown)
	e.ProtoReflect().SetUnknown(append([]byte{0xfa, 0x3f, byte(len(secret))}, secret...)) // field 1023
	b, err := proto.Marshal(redact.Content(e))
	require.NoError(t, err)
	assert.NotContains(t, string(b), secret)
	assert.EqualValues(t, 3, redact.Content(e).GetSeq())
}

func TestNothingHasNoContent(t *testing.T) {
	t.Parallel()
	assert.Nil(t, redact.Content[*agentv1.Run](nil))
}
