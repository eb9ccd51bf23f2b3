package effects

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// unbounded is an agent that leaves the bound of results to its run.
type unbounded struct{ agent.Machine }

func (unbounded) ToolBound(string) (int64, bool) { return 0, false }

// The protocol says which kinds of events are intents: a kind that is added there is no command in a sandbox by
// default.
func TestEveryKindOfIntentHasAnEffectOfItsOwn(t *testing.T) {
	t.Parallel()
	bare, content := run.Split(&agentv1.RunSpec{})
	created := run.NewEvent(&agentv1.RunCreated{Spec: bare, Content: content, FoldVersion: run.FoldVersion})
	created.Seq, created.Epoch, created.Critical, created.Time = 1, 1, true, timestamppb.Now()
	s, err := run.Fold("projects/p/runs/r", nil, func(yield func(*agentv1.Event, error) bool) { yield(created, nil) })
	require.NoError(t, err)
	c := NewCaller(t.Context(), nil, Deps{})
	s.Frame.Machine = unbounded{}
	stage := &run.Stage{RequestID: "r/2", Calls: []*run.Call{{Call: &toolv1.ToolCall{Function: "bash"}}}}

	kinds := (&agentv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	made := map[reflect.Type]protoreflect.Name{}
	for i := range kinds.Len() {
		kind, e := kinds.Get(i), &agentv1.Event{Seq: 2}
		e.ProtoReflect().Set(kind, e.ProtoReflect().NewField(kind))
		effect, err := c.New(s, &run.Intent{Event: e, Frame: s.Frame, Stage: stage})
		if !journal.Intent(e) {
			assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INTERNAL), "%s: %v", kind.Name(), err)
			assert.Nil(t, effect, "%s", kind.Name())
			continue
		}
		if !assert.NoError(t, err, "%s", kind.Name()) {
			continue
		}
		assert.Empty(t, made[reflect.TypeOf(effect)], "%s has the effect of another kind", kind.Name())
		made[reflect.TypeOf(effect)] = kind.Name()
	}
	assert.NotEmpty(t, made)
}
