package journal

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	optionsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/options/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// A kind has what its role, and the form in which journals store it, need.
func TestEveryKindHasTheFieldsOfItsRole(t *testing.T) {
	t.Parallel()
	kinds := (&agentv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	roles := map[optionsv1.EventRole]int{}
	for i := range kinds.Len() {
		kind, fields := kinds.Get(i), kinds.Get(i).Message().Fields()
		intent := fields.ByName("intent")
		roles[role(kind)]++
		switch role(kind) {
		case optionsv1.EventRole_EVENT_ROLE_INTENT:
			key := fields.ByName("request_id")
			assert.True(t, key != nil && key.Kind() == protoreflect.StringKind, "%s has no request_id", kind.Name())
		case optionsv1.EventRole_EVENT_ROLE_OUTCOME:
			assert.True(t, intent != nil && intent.Kind() == protoreflect.Int64Kind, "%s has no intent", kind.Name())
		case optionsv1.EventRole_EVENT_ROLE_NOTE, optionsv1.EventRole_EVENT_ROLE_UNSPECIFIED:
		}
		if strings.HasSuffix(string(kind.Name()), "_outcome") {
			assert.Equal(t, optionsv1.EventRole_EVENT_ROLE_OUTCOME, role(kind), "%s", kind.Name())
		}
		stored := 0
		for k := range fields.Len() {
			if f := fields.Get(k); redact.IsContent(f) && f.Message() != nil {
				stored++
			}
		}
		assert.LessOrEqual(t, stored, 1, "%s has more than one message of content: one is stored apart", kind.Name())
	}
	assert.Equal(t, 5, roles[optionsv1.EventRole_EVENT_ROLE_INTENT], "the effects that agentorch asks others for")
}

func TestRolesOfEvents(t *testing.T) {
	t.Parallel()
	call := &agentv1.Event{Seq: 4, Kind: &agentv1.Event_ToolIntent{ToolIntent: &agentv1.ToolIntent{RequestId: "r/4"}}}
	end := &agentv1.Event{Seq: 7, Kind: &agentv1.Event_ToolOutcome{ToolOutcome: &agentv1.ToolOutcome{Intent: 4}}}
	cut := &agentv1.Event{Seq: 8, Kind: &agentv1.Event_Interrupted{Interrupted: &agentv1.Interrupted{Intent: 4}}}
	info := &agentv1.Event{Seq: 9, Kind: &agentv1.Event_Info{Info: &agentv1.Info{}}}
	for _, tt := range []struct {
		event    *agentv1.Event
		intent   bool
		key      string
		of       int64
		critical bool
	}{
		{call, true, "r/4", 0, true},
		{end, false, "", 4, true},
		{cut, false, "", 0, true},
		{info, false, "", 0, false},
		{&agentv1.Event{Seq: 10}, false, "", 0, false},
	} {
		assert.Equal(t, tt.intent, Intent(tt.event), "%v", tt.event)
		assert.Equal(t, tt.key, RequestID(tt.event), "%v", tt.event)
		assert.Equal(t, tt.of, IntentOf(tt.event), "%v", tt.event)
		assert.Equal(t, tt.critical, Critical(tt.event), "%v", tt.event)
	}
}
