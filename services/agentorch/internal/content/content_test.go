package content_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/content"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal/journaltest"
)

// words that only occur in what samples say.
const secret = "canary"

func TestEveryKindKeepsWhatHappenedAndLosesWhatWasSaid(t *testing.T) {
	t.Parallel()
	samples := journaltest.Samples(10)
	require.NotEmpty(t, samples)
	for _, e := range samples {
		kinds := e.ProtoReflect().Descriptor().Oneofs().ByName("kind")
		kind := e.ProtoReflect().WhichOneof(kinds)
		t.Run(string(kind.Name()), func(t *testing.T) {
			t.Parallel()
			fill(e.ProtoReflect())
			before := proto.CloneOf(e)
			content.Strip(e)
			text, err := protojson.Marshal(e)
			require.NoError(t, err)
			assert.NotContains(t, string(text), secret)
			assert.Equal(t, before.GetSeq(), e.GetSeq())
			if !content.Field(kind) {
				assert.Equal(t, kind, e.ProtoReflect().WhichOneof(kinds), "the kind stays")
			}
		})
	}
}

// fill writes the secret into every text below a field of content.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case f.Message() == nil || f.IsMap() || f.IsList() || f.ContainingOneof() != nil && !m.Has(f):
		case content.Field(f):
			write(m.Mutable(f).Message(), 3)
		case m.Has(f):
			fill(m.Mutable(f).Message())
		}
	}
}

func write(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case f.IsMap() || f.ContainingOneof() != nil && m.WhichOneof(f.ContainingOneof()) != nil:
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			m.Mutable(f).List().Append(protoreflect.ValueOfString(secret))
		case f.IsList():
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(secret))
		case f.Message() != nil && depth > 0 && !strings.HasPrefix(string(f.Message().FullName()), "google."):
			write(m.Mutable(f).Message(), depth-1)
		}
	}
}

// TestNoContentHidesElsewhere walks the protocol: no kind of event leads to a message that holds what was said by a way that is not known as content.
func TestNoContentHidesElsewhere(t *testing.T) {
	t.Parallel()
	says := map[protoreflect.FullName]bool{}
	for _, m := range []proto.Message{
		&modelv1.ChatMessage{}, &modelv1.ModelOutput{}, &toolv1.ToolCall{}, &toolv1.ToolResult{}, &sandboxv1.ExecResult{}, &agentv1.Sample{}, &agentv1.Target{}, &agentv1.InfoContent{},
	} {
		says[m.ProtoReflect().Descriptor().FullName()] = true
	}
	seen := map[protoreflect.FullName]bool{}
	var walk func(m protoreflect.MessageDescriptor, path string)
	walk = func(m protoreflect.MessageDescriptor, path string) {
		assert.False(t, says[m.FullName()], "%s is content that is not in a field of that name", path)
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if f.IsMap() {
				f = f.MapValue()
			}
			if f.Message() != nil && !content.Field(m.Fields().Get(i)) {
				walk(f.Message(), path+"."+string(m.Fields().Get(i).Name()))
			}
		}
	}
	walk((&agentv1.Event{}).ProtoReflect().Descriptor(), "Event")
}

func TestFieldsThatAreListedExist(t *testing.T) {
	t.Parallel()
	spec := &agentv1.RunSpec{
		Prompt: secret, Choices: []string{secret}, MetadataJson: secret, Store: map[string]string{"a": secret}, Input: []*modelv1.ChatMessage{{Id: secret}},
		Target: &agentv1.Target{Values: []string{secret}}, Steps: []*agentv1.AgentRef{{Name: "react", ParamsJson: secret}}, Scorers: []*agentv1.ScorerRef{{Name: "exec", ParamsJson: secret}},
		Config:    &modelv1.GenerateConfig{SystemMessage: new(secret)},
		Sandboxes: map[string]*sandboxv1.SandboxSpec{"default": {Driver: "local", Setup: secret, Env: map[string]string{"A": secret}}},
	}
	content.Strip(spec)
	text, err := protojson.Marshal(spec)
	require.NoError(t, err)
	assert.NotContains(t, string(text), secret)
	assert.Equal(t, "react", spec.GetSteps()[0].GetName())
	assert.Equal(t, "local", spec.GetSandboxes()["default"].GetDriver())
}
