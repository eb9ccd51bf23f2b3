package decide

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// act asks an agent for its next action, and applies it.
func (d *Step) act(f *run.Frame) (bool, error) {
	action, err := f.Machine.Next(f)
	if err != nil {
		return true, d.fail(err)
	}
	if action.Then == nil && len(action.Events) == 0 {
		if f.Busy() || f.Calls != nil {
			return false, nil // it waits for open effects
		}
		return true, d.fail(fmt.Errorf("the agent %s does not know what to do", f.Name()))
	}
	effects, several := action.Then.(agent.All)
	if !several && action.Then != nil {
		effects = agent.All{action.Then}
	}
	if slices.ContainsFunc(effects, func(then agent.Then) bool { _, done := then.(agent.Done); return done }) {
		// Effects from outside end before anything is decided, since the agent is asked again in the same state.
		if left, err := d.stopOutside(f); left || err != nil {
			return false, err
		}
	}
	if slices.ContainsFunc(effects, func(then agent.Then) bool { _, calls := then.(agent.CallTools); return calls }) {
		// The review precedes any decision: if no review is available now, the agent is asked again in the same state.
		return d.wantReview(f, action.Events, effects)
	}
	if stopped, err := d.add(f, action.Events); err != nil || stopped {
		return true, err
	}
	return d.beginAll(f, effects)
}

// beginAll begins the effects that an agent wants, up to one that ends the agent or the run.
func (d *Step) beginAll(f *run.Frame, effects agent.All) (more bool, err error) {
	more = true
	for _, then := range effects {
		if d.s.Stopping() || f.Ending() {
			return true, nil
		}
		if more, err = d.beginOne(f, then); err != nil {
			return false, err
		}
	}
	return more, nil
}

func (d *Step) beginOne(f *run.Frame, then agent.Then) (more bool, err error) {
	switch then := then.(type) {
	case agent.Generate:
		return true, d.generate(f, then)
	case agent.Compact:
		return true, d.compact(f, then)
	case agent.CallTools:
		return true, nil // their reviews are in the journal
	case agent.Score:
		return d.scoreNow(f)
	case agent.Ask:
		return true, d.askForAgent(f, then.Worker)
	case agent.Start:
		return true, d.start(f, then)
	case agent.Wait:
		return d.waitForInput(f)
	case agent.Done:
		if f.Busy() || f.Calls != nil {
			return true, d.fail(fmt.Errorf("the agent %s is done while effects of it are under way", f.Name()))
		}
		if f.Parent != nil {
			return true, d.ended(f, &agentv1.AgentEnded{Content: f.Output()})
		}
		return true, d.emit(run.NewEvent(&agentv1.StepEnded{Index: int32(d.s.Step), Completed: then.Completed}))
	default:
		return false, fmt.Errorf("decide: an agent wants a %T", then)
	}
}

// start starts another agent. It pins the agent's tools as they are now.
func (d *Step) start(f *run.Frame, s agent.Start) error {
	ref := proto.CloneOf(s.Agent)
	var own []*toolv1.ToolDefinition
	for _, tool := range ref.GetTools() {
		definition := definitionOf(f, s.Tools, tool)
		if definition == nil {
			return d.fail(fmt.Errorf("the agent %s begins %s with the tool %s, which is not known", f.Name(), agent.DisplayName(ref), run.VisibleName(tool)))
		}
		if !proto.Equal(d.s.Tool(run.VisibleName(tool)), definition) {
			own = append(own, definition)
		}
		run.PinTool(tool, definition)
	}
	return d.emitIn(f, run.NewEvent(&agentv1.AgentBegan{
		Name: agent.DisplayName(ref), Limits: s.Limits, Content: &agentv1.AgentBeganContent{Agent: ref, Messages: s.Messages, Tools: own},
	}))
}

// definitionOf returns the definition of a tool of an agent that f begins; nil if it is unknown.
func definitionOf(f *run.Frame, given []*toolv1.ToolDefinition, tool *toolv1.ToolRef) *toolv1.ToolDefinition {
	name := run.VisibleName(tool)
	for _, definition := range append(slices.Clip(given), tool.GetDefinition()) {
		if definition.GetInfo().GetName() == name {
			return definition
		}
	}
	if slices.ContainsFunc(f.ToolRefs(), func(own *toolv1.ToolRef) bool { return proto.Equal(own, tool) }) {
		return f.Tool(name)
	}
	return nil
}

// ended journals the end of an agent that another agent started, and passes the result to its parent.
func (d *Step) ended(f *run.Frame, how *agentv1.AgentEnded) error {
	began, err := strconv.ParseInt(f.Span, 10, 64)
	how.Intent = began
	if err != nil {
		return fmt.Errorf("decide: the span %q is no number of an event: %w", f.Span, err)
	}
	return d.emitIn(f.Parent, run.NewEvent(how))
}

// add emits an agent's events. The results of a message's calls are added together or, if a limit forbids it, not at
// all; any other message is added by itself. If a limit forbids an event, the run has stopped.
func (d *Step) add(f *run.Frame, events []*agentv1.Event) (stopped bool, err error) {
	within := false // a group of results, which was looked at as a whole
	for i, e := range events {
		fresh, further := group(events[i:]), within && isResult(e)
		within = isResult(e)
		if fresh > 0 && !further {
			if reached, of := d.grows(f, fresh); reached != nil {
				return true, d.hitIn(of, reached)
			}
		}
		e.Span = f.Span
		if err := d.emitBy("agent", e); err != nil {
			return false, err
		}
	}
	return false, nil
}

// group returns how many of the messages at the beginning of events are added together: all results, or one other.
func group(events []*agentv1.Event) int {
	n := 0
	for n < len(events) && isResult(events[n]) {
		n++
	}
	if n == 0 && events[0].GetMessageAdded() != nil {
		return 1
	}
	return n
}

func isResult(e *agentv1.Event) bool {
	return e.GetMessageAdded().GetContent().GetRole() == modelv1.Role_ROLE_TOOL
}

// grows returns the limit that the conversation would break with so many more messages, or nil, and the frame that owns
// it.
func (d *Step) grows(f *run.Frame, by int) (*agentv1.LimitReached, *run.Frame) {
	return f.Broken(func(bounds *limit.Set, u limit.Use) *agentv1.LimitReached { return bounds.Growth(u.Messages + by) })
}

// forbidden returns the limit that forbids a further effect of the agent, or nil, and the frame that owns it.
func (d *Step) forbidden(f *run.Frame) (*agentv1.LimitReached, *run.Frame) {
	if reached, of := d.late(f); reached != nil {
		return reached, of
	}
	return f.Broken((*limit.Set).BeforeGenerate)
}

// late returns the limit of time that forbids a further effect of the agent, or nil, and the frame that owns it.
func (d *Step) late(f *run.Frame) (*agentv1.LimitReached, *run.Frame) {
	s := d.s
	if reached, _ := s.Limits.TimedOut(s.Elapsed(d.facts.Now)); reached != nil {
		return reached, nil
	}
	if reached, _ := s.Limits.Overworked(s.Working); reached != nil {
		return reached, nil
	}
	return f.Late(d.facts.Now)
}

// generate journals the intent of a model call, after the messages that an operator posted.
func (d *Step) generate(f *run.Frame, g agent.Generate) error {
	s := d.s
	if len(f.Posted) > 0 {
		if stopped, err := d.addPosted(f); err != nil || stopped {
			return err
		}
	}
	if reached, of := d.forbidden(f); reached != nil {
		return d.hitIn(of, reached)
	}
	ref, role := s.Model(g.Model)
	if ref == nil {
		return d.fail(errors.New("the run names no model, and a step asks one"))
	}
	intent := &agentv1.ModelIntent{
		Model: ref.GetModel(), Role: role, Turn: int32(s.Answers + 1), MessageCount: int32(len(f.Input())),
		Config: chat.ResolveConfig(ref.GetConfig(), s.Spec().GetConfig(), g.Config, ref == s.Spec().GetModel()), Purpose: agent.PurposeAgent, RequestId: s.Key(s.Seq + 1),
		ToolChoice: g.ToolChoice,
	}
	if !g.NoTools {
		for _, tool := range f.Tools() {
			intent.Tools = append(intent.Tools, tool.GetInfo().GetName())
		}
	}
	if len(intent.GetTools()) == 0 {
		intent.ToolChoice = &toolv1.ToolChoice{Choice: &toolv1.ToolChoice_Mode{Mode: toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE}}
	}
	return d.emitIn(f, run.NewEvent(intent))
}

// compact journals the intent of a model call that shortens an agent's input. Messages that an operator posted wait for
// the agent's next turn, since they are not in what is shortened.
func (d *Step) compact(f *run.Frame, c agent.Compact) error {
	if reached, of := d.forbidden(f); reached != nil {
		return d.hitIn(of, reached)
	}
	if ref, _ := d.s.Model(c.Model); ref == nil {
		return d.fail(errors.New("the run names no model, and a compaction asks one"))
	}
	content := &agentv1.ModelIntentContent{Messages: c.Messages, Instructions: c.Instructions}
	if c.Native {
		for _, tool := range f.Tools() {
			content.Tools = append(content.Tools, tool.GetInfo())
		}
	}
	intent := d.modelIntent(agent.PurposeCompaction, c.Model, nil, content, nil)
	intent.MayFail, intent.Compact = c.MayFail, c.Native
	if c.Native && intent.GetConfig().GetBatch() != nil { // It does not travel in a batch.
		intent.Config = proto.CloneOf(intent.GetConfig())
		intent.Config.Batch = nil
	}
	return d.emitIn(f, run.NewEvent(intent))
}

// modelIntent is the intent of a model call with messages and tools of its own, in place of an agent's.
func (d *Step) modelIntent(
	purpose, model string, config *modelv1.GenerateConfig, content *agentv1.ModelIntentContent, choice *toolv1.ToolChoice,
) *agentv1.ModelIntent {
	s := d.s
	ref, role := s.Model(model)
	i := &agentv1.ModelIntent{
		Model: ref.GetModel(), Role: role, MessageCount: int32(len(content.GetMessages())), Purpose: purpose,
		Config:    chat.ResolveConfig(ref.GetConfig(), s.Spec().GetConfig(), config, ref == s.Spec().GetModel()),
		RequestId: s.Key(s.Seq + 1), ToolChoice: choice, Content: content,
	}
	for _, tool := range content.GetTools() {
		i.Tools = append(i.Tools, tool.GetName())
	}
	if len(i.GetTools()) == 0 {
		i.ToolChoice = &toolv1.ToolChoice{Choice: &toolv1.ToolChoice_Mode{Mode: toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE}}
	}
	return i
}

// addPosted appends an operator's messages to the conversation. Messages of one kind become one message, since the
// roles in a conversation alternate.
func (d *Step) addPosted(f *run.Frame) (stopped bool, err error) {
	message := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: run.PostedContent(f.Posted), Source: modelv1.MessageSource_MESSAGE_SOURCE_OPERATOR}
	return d.add(f, []*agentv1.Event{agent.Add(message)})
}

// waitForInput waits for an operator's message, or takes a pending one.
func (d *Step) waitForInput(f *run.Frame) (bool, error) {
	if len(f.Posted) > 0 {
		_, err := d.addPosted(f)
		return true, err
	}
	return false, d.waitIn(f, &agentv1.WaitChanged{Wait: waits.ForInput()})
}
