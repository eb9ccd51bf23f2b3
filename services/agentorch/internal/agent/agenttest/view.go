package agenttest

import (
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

// view is the run as the agent sees it.
type view struct {
	agent.Conversation

	spec           *agentv1.RunSpec
	tools          []*toolv1.ToolDefinition
	output, answer *modelv1.ModelOutput
	store          map[string]string
	scores         []*agentv1.NamedScore
}

var _ agent.View = (*view)(nil)

func (v *view) apply(e *agentv1.Event) {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_MessageAdded:
		if answered := chat.FirstMessage(v.answer); answered != nil && answered.GetId() == k.MessageAdded.GetContent().GetId() {
			v.output = v.answer
		}
	case *agentv1.Event_OutputSet:
		v.output = proto.CloneOf(v.output)
		v.output.Completion = k.OutputSet.GetCompletion()
	case *agentv1.Event_StoreChanged:
		for _, c := range k.StoreChanged.GetContent().GetChanges() {
			v.store[c.GetKey()] = c.GetValueJson()
		}
	}
	v.Apply(e)
}

// Spec implements [agent.View].
func (v *view) Spec() *agentv1.RunSpec { return v.spec }

// Tools implements [agent.View].
func (v *view) Tools() []*toolv1.ToolDefinition { return v.tools }

// Output implements [agent.View].
func (v *view) Output() *modelv1.ModelOutput { return v.output }

// Answer implements [agent.View].
func (v *view) Answer() *modelv1.ModelOutput { return v.answer }

// Stored implements [agent.View].
func (v *view) Stored(key string) (string, bool) {
	value, ok := v.store[key]
	return value, ok
}

// Scores implements [agent.View].
func (v *view) Scores() []*agentv1.NamedScore { return v.scores }
