package decide

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// outside begins an effect that was requested from outside. If no effect may begin now, as in a held run, the command
// stays in the inbox. If none may ever begin, as in a stopping run, the event that takes the command records that.
func (d *Step) outside(c inbox.Command, r *agentv1.EffectRequest) (taken bool, err error) {
	s, f := d.s, d.s.At(r.GetSpan())
	refused := s.Stopping() || s.StepsDone || s.Fault != nil || f == nil || f.Ending()
	if !refused && (s.Step < 0 || s.Held || s.Pause != nil || d.facts.Unread || d.facts.Lack != "") {
		return false, nil
	}
	received := &agentv1.CommandReceived{CommandId: c.ID, Type: agentv1.CommandType_COMMAND_TYPE_EFFECT, ClientKey: r.GetClientKey(), Outdated: refused}
	if refused {
		return true, d.emitBy(c.Principal, run.NewEvent(received))
	}
	reached, of := d.forbidden(f)
	if asked := r.GetGenerate(); asked != nil && reached == nil {
		reached, of = f.Broken(func(b *limit.Set, u limit.Use) *agentv1.LimitReached {
			u.Messages = len(asked.GetMessages())
			return b.BeforeGenerate(u)
		})
	}
	received.Outdated = reached != nil
	e := run.NewEvent(received)
	e.Span = f.Span
	if err := d.emitBy(c.Principal, e); err != nil {
		return false, err
	}
	if reached != nil {
		return true, d.hitIn(of, reached)
	}
	intent := run.NewEvent(&agentv1.ExecIntent{
		Environment: r.GetExec().GetEnvironment(), RequestId: s.Key(s.Seq + 1), Purpose: run.PurposeOutside, Content: r.GetExec().GetSpec(), ClientKey: r.GetClientKey(),
	})
	if asked := r.GetGenerate(); asked != nil {
		intent = run.NewEvent(d.outsideGenerate(asked, r.GetClientKey()))
	}
	intent.Span = f.Span
	return true, d.emitBy(c.Principal, intent)
}

// outsideGenerate is the intent of a model call that was requested from outside.
func (d *Step) outsideGenerate(asked *agentv1.OutsideGenerate, key string) *agentv1.ModelIntent {
	s := d.s
	ref, role := s.Model(asked.GetModel())
	i := &agentv1.ModelIntent{
		Model: ref.GetModel(), Role: role, Turn: int32(s.Answers + 1), MessageCount: int32(len(asked.GetMessages())), Purpose: run.PurposeOutside,
		Config:    chat.ResolveConfig(ref.GetConfig(), s.Spec().GetConfig(), asked.GetConfig(), ref == s.Spec().GetModel()),
		RequestId: s.Key(s.Seq + 1), ToolChoice: asked.GetToolChoice(), ClientKey: key,
		Content: &agentv1.ModelIntentContent{Messages: asked.GetMessages(), Tools: asked.GetTools()},
	}
	for _, tool := range asked.GetTools() {
		i.Tools = append(i.Tools, tool.GetName())
	}
	if len(i.GetTools()) == 0 {
		i.ToolChoice = &toolv1.ToolChoice{Choice: &toolv1.ToolChoice_Mode{Mode: toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE}}
	}
	return i
}
