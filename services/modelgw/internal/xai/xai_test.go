package xai_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// published are the files that xAI publishes: the descriptors in the Python package xai-sdk 1.21.0 (Apache-2.0), in the
// order of their imports.
func published(t *testing.T) *protoregistry.Files {
	t.Helper()
	raw, err := os.ReadFile("testdata/xai-sdk-1.21.0.binpb")
	require.NoError(t, err)
	var set descriptorpb.FileDescriptorSet
	require.NoError(t, proto.Unmarshal(raw, &set))
	files, err := protodesc.NewFiles(&set)
	require.NoError(t, err)
	return files
}

// found is what is published under the name of a declaration of ours.
func found[D protoreflect.Descriptor](t *testing.T, files *protoregistry.Files, ours D) D {
	t.Helper()
	theirs, err := files.FindDescriptorByName(ours.FullName())
	require.NoError(t, err)
	d, ok := theirs.(D)
	require.True(t, ok, ours.FullName())
	return d
}

// field is what matters of a field on the wire and in JSON.
type field struct {
	Number      protoreflect.FieldNumber
	Kind        protoreflect.Kind
	Cardinality protoreflect.Cardinality
	Presence    bool
	JSON        string
	Of, OneOf   protoreflect.FullName
}

func fieldOf(d protoreflect.FieldDescriptor) field {
	f := field{Number: d.Number(), Kind: d.Kind(), Cardinality: d.Cardinality(), Presence: d.HasPresence(), JSON: d.JSONName()}
	if m := d.Message(); m != nil {
		f.Of = m.FullName()
	}
	if e := d.Enum(); e != nil {
		f.Of = e.FullName()
	}
	if o := d.ContainingOneof(); o != nil {
		f.OneOf = o.FullName()
	}
	return f
}

// What we declare is what xAI publishes, field by field; enums and methods too.
func TestTheProtocolIsThePublishedOne(t *testing.T) {
	t.Parallel()
	for _, own := range []protoreflect.FileDescriptor{
		xai.File_xai_api_v1_chat_proto, xai.File_xai_api_v1_batch_proto, xai.File_xai_api_v1_tokenize_proto,
	} {
		t.Run(own.Path(), func(t *testing.T) {
			t.Parallel()
			same(t, published(t), own)
		})
	}
}

// same holds a file of ours to the published ones.
func same(t *testing.T, files *protoregistry.Files, own protoreflect.FileDescriptor) {
	t.Helper()
	for i := range own.Messages().Len() {
		m := own.Messages().Get(i)
		theirs := found(t, files, m)
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			want := theirs.Fields().ByName(f.Name())
			if assert.NotNil(t, want, f.FullName()) {
				assert.Equal(t, fieldOf(want), fieldOf(f), f.FullName())
			}
		}
	}
	for i := range own.Enums().Len() {
		e := own.Enums().Get(i)
		theirs := found(t, files, e)
		require.Equal(t, theirs.Values().Len(), e.Values().Len(), e.FullName())
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			want := theirs.Values().ByName(v.Name())
			if assert.NotNil(t, want, v.FullName()) {
				assert.Equal(t, want.Number(), v.Number(), v.FullName())
			}
		}
	}
	for i := range own.Services().Len() {
		s := own.Services().Get(i)
		theirs := found(t, files, s)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			want := theirs.Methods().ByName(m.Name())
			if assert.NotNil(t, want, m.FullName()) {
				assert.Equal(t,
					[]any{want.Input().FullName(), want.Output().FullName(), want.IsStreamingClient(), want.IsStreamingServer()},
					[]any{m.Input().FullName(), m.Output().FullName(), m.IsStreamingClient(), m.IsStreamingServer()}, m.FullName())
			}
		}
	}
}
