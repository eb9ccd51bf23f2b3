package run

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/corpustest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// notBuilt are kinds of events that no version writes yet.
var notBuilt = []protoreflect.Name{
	"anchored", "approval_decided", "approval_requested", "branched", "checkpointed", "delta", "extension", "input_answered", "input_requested",
	"log_line", "sample_invalidated", "sandbox_acted", "score_edited", "span_began", "span_ended", "subtask_intent", "subtask_outcome",
}

// Every kind of event that a fold knows is in a recorded journal.
func TestEveryKindOfEventIsRecorded(t *testing.T) {
	t.Parallel()
	recorded := corpustest.Kinds(t, "testdata/journals", "../eval/testdata/journals")
	for _, field := range kinds {
		if !slices.Contains(notBuilt, field.Name()) {
			assert.True(t, recorded[string(field.Name())], "no recorded journal has the kind %s", field.Name())
			continue
		}
		assert.False(t, recorded[string(field.Name())], "%s is built now", field.Name())
		s, e := New("projects/p/runs/r", nil), &agentv1.Event{Seq: 1}
		e.ProtoReflect().Set(field, e.ProtoReflect().NewField(field))
		e.Critical = journal.Critical(e)
		require.NoError(t, s.Apply(e))
		assert.Equal(t, e.GetCritical(), s.TooNew, "the fold knows %s, and no recorded journal has it", field.Name())
	}
}
