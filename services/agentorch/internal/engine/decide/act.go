package decide

import (
	"errors"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// act asks the step's agent what to do, and does it.
func (d *Step) act() (bool, error) {
	action, err := d.s.Machine.Next(d.s)
	if err != nil {
		return true, d.fail(err)
	}
	if action.Then == nil && len(action.Events) == 0 {
		return true, d.fail(fmt.Errorf("the agent of step %d does not know what to do", d.s.Step))
	}
	if _, calls := action.Then.(agent.CallTools); calls {
		// Reviewed before anything is decided: where no review is to be had now, the agent is asked again at the same
		// place.
		return d.wantReview(action.Events)
	}
	if stopped, err := d.add(action.Events); err != nil || stopped {
		return true, err
	}
	switch then := action.Then.(type) {
	case nil:
		return true, nil
	case agent.Generate:
		return true, d.generate(then)
	case agent.Score:
		return true, d.scoreNow()
	case agent.Ask:
		return true, d.askForAgent(then.Worker)
	case agent.Wait:
		return d.waitForInput()
	case agent.Done:
		return true, d.emit(run.NewEvent(&agentv1.StepEnded{Index: int32(d.s.Step), Completed: then.Completed}))
	default:
		return false, fmt.Errorf("decide: an action ends with a %T", then)
	}
}

// add emits an agent's events. The results of a message's calls are added together or, where the bound forbids it,
// not at all; any other message is added by itself. Where the bound forbids one, the run has stopped.
func (d *Step) add(events []*agentv1.Event) (stopped bool, err error) {
	within := false // a group of results, which was looked at as a whole
	for i, e := range events {
		fresh, further := group(events[i:]), within && isResult(e)
		within = isResult(e)
		if fresh > 0 && !further {
			if reached := d.s.Limits.Growth(len(d.s.Messages()) + fresh); reached != nil {
				return true, d.hit(reached)
			}
		}
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

// forbidden returns the bound that forbids a further effect of the agent, or nil.
func (d *Step) forbidden() *agentv1.LimitReached {
	s := d.s
	if reached, _ := s.Limits.TimedOut(s.Elapsed(d.facts.Now)); reached != nil {
		return reached
	}
	if reached, _ := s.Limits.Overworked(s.Working); reached != nil {
		return reached
	}
	return s.Limits.BeforeGenerate(s.Use())
}

// generate journals the intent of a model call, after the messages that an operator posted.
func (d *Step) generate(g agent.Generate) error {
	s := d.s
	if len(s.Posted) > 0 {
		if stopped, err := d.addPosted(); err != nil || stopped {
			return err
		}
	}
	if reached := d.forbidden(); reached != nil {
		return d.hit(reached)
	}
	ref, role := s.Model(g.Model)
	if ref == nil {
		return d.fail(errors.New("the run names no model, and a step asks one"))
	}
	intent := &agentv1.ModelIntent{
		Model: ref.GetModel(), Role: role, Turn: int32(s.Answers + 1), MessageCount: int32(len(s.Messages())),
		Config: chat.ResolveConfig(ref.GetConfig(), s.Spec().GetConfig(), g.Config, ref == s.Spec().GetModel()), Purpose: run.PurposeAgent, RequestId: s.Key(s.Seq + 1),
		ToolChoice: g.ToolChoice,
	}
	if !g.NoTools {
		for _, tool := range s.Tools() {
			intent.Tools = append(intent.Tools, tool.GetInfo().GetName())
		}
	}
	if len(intent.GetTools()) == 0 {
		intent.ToolChoice = &toolv1.ToolChoice{Choice: &toolv1.ToolChoice_Mode{Mode: toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE}}
	}
	return d.emit(run.NewEvent(intent))
}

// addPosted puts an operator's messages into the conversation: those of one kind as one, since a conversation takes
// turns.
func (d *Step) addPosted() (stopped bool, err error) {
	message := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: run.PostedContent(d.s.Posted), Source: modelv1.MessageSource_MESSAGE_SOURCE_OPERATOR}
	return d.add([]*agentv1.Event{agent.Add(message)})
}

// waitForInput waits for an operator's message, or takes one that is there.
func (d *Step) waitForInput() (bool, error) {
	if len(d.s.Posted) > 0 {
		_, err := d.addPosted()
		return true, err
	}
	return false, d.phase(agentv1.RunState_RUN_STATE_WAITING, waits.ForInput())
}
