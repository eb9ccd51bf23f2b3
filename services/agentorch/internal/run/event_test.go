package run

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/reflect/protoregistry"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// A kind that is added to the protocol can be journaled at once.
func TestEveryKindOfEventHasItsField(t *testing.T) {
	t.Parallel()
	fields := (&agentv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	assert.Len(t, kinds, fields.Len(), "each kind has a message of its own")
	for name, field := range kinds {
		message, err := protoregistry.GlobalTypes.FindMessageByName(name)
		assert.NoError(t, err)
		e := NewEvent(message.New().Interface())
		assert.Equal(t, field, e.ProtoReflect().WhichOneof(field.ContainingOneof()))
	}
	assert.Panics(t, func() { NewEvent(&agentv1.Run{}) })
}
