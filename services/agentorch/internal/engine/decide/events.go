package decide

import (
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// emit adds an event and folds it.
func (d *Step) emit(e *agentv1.Event) error { return d.emitBy("system", e) }

// emitIn is emit for an event of an agent.
func (d *Step) emitIn(f *run.Frame, e *agentv1.Event) error {
	e.Span = f.Span
	return d.emit(e)
}

func (d *Step) emitBy(who string, e *agentv1.Event) error {
	seq := d.s.Seq + 1
	e.Journal, e.Seq, e.Epoch = d.s.Name, seq, d.facts.Epoch
	e.Time, e.WorkingStart, e.Critical = timestamppb.New(d.facts.Now), durationpb.New(d.s.Working), journal.Critical(e)
	if e.GetActor() == "" {
		e.Actor = who
	}
	d.name(e)
	entry := journal.Entry{Event: e, Same: d.same(e)}
	d.note(e)
	if err := d.s.Apply(e); err != nil {
		return fmt.Errorf("decide: %s: %w", d.s.Name, err)
	}
	d.Entries = append(d.Entries, entry)
	return nil
}

// name gives an id to the thing that an event begins, and to messages without one.
func (d *Step) name(e *agentv1.Event) {
	if e.GetId() == "" {
		e.Id = eventID(e)
	}
	var messages []*modelv1.ChatMessage
	switch k := e.GetKind().(type) {
	case *agentv1.Event_MessageAdded:
		messages = []*modelv1.ChatMessage{k.MessageAdded.GetContent()}
	case *agentv1.Event_HistoryChanged:
		messages = k.HistoryChanged.GetContent().GetMessages()
	case *agentv1.Event_InputAdded:
		messages = []*modelv1.ChatMessage{k.InputAdded.GetContent()}
	case *agentv1.Event_Compacted:
		messages = k.Compacted.GetContent().GetMessages()
	case *agentv1.Event_ModelIntent:
		messages = k.ModelIntent.GetContent().GetMessages()
	case *agentv1.Event_AgentBegan:
		messages = k.AgentBegan.GetContent().GetMessages()
	case *agentv1.Event_ModelOutcome:
		for _, c := range k.ModelOutcome.GetContent().GetOutput().GetChoices() {
			messages = append(messages, c.GetMessage())
		}
		messages = append(messages, k.ModelOutcome.GetContent().GetCompacted()...)
	}
	for i, m := range messages {
		if m != nil && m.GetId() == "" {
			m.Id = d.messageID(e.GetSeq(), i)
		}
	}
}

// messageID is the id of a message that the run makes itself. It is unique beyond the run, and the same when the step
// is repeated.
func (d *Step) messageID(seq int64, i int) string {
	if i == 0 {
		return fmt.Sprintf("%s.%d", d.s.ID(), seq)
	}
	return fmt.Sprintf("%s.%d.%d", d.s.ID(), seq, i)
}

// eventID is the number of the event, and that of its intent for an outcome.
func eventID(e *agentv1.Event) string {
	if intent := journal.IntentOf(e); intent != 0 {
		return fmt.Sprint(intent)
	}
	return fmt.Sprint(e.GetSeq())
}

// same returns the number of the event that already holds the content, so that it is stored once.
func (d *Step) same(e *agentv1.Event) int64 {
	f := d.s.At(e.GetSpan())
	if f == nil || f.Answer() == nil {
		return 0
	}
	answer := chat.FirstMessage(f.Answer())
	switch k := e.GetKind().(type) {
	case *agentv1.Event_MessageAdded:
		if answer != nil && k.MessageAdded.GetContent() == answer {
			return f.Answered()
		}
	case *agentv1.Event_ToolIntent:
		for _, call := range answer.GetToolCalls() {
			if k.ToolIntent.GetContent() == call {
				return f.Answered()
			}
		}
	}
	return 0
}

// note records what an append must cause besides storing the event.
func (d *Step) note(e *agentv1.Event) {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_RunFinished:
		d.Finished, d.Row = k.RunFinished, true
	case *agentv1.Event_RunStateChanged, *agentv1.Event_WaitChanged, *agentv1.Event_SandboxOutcome, *agentv1.Event_SandboxRemoved, *agentv1.Event_LimitHit,
		*agentv1.Event_ErrorRaised, *agentv1.Event_StepBegan, *agentv1.Event_AgentBegan, *agentv1.Event_AgentEnded, *agentv1.Event_ScoreOutcome,
		*agentv1.Event_LimitsRetuned:
		d.Row = true
	}
	if journal.Intent(e) { // An effect may take long; lists should show earlier answers in the meantime.
		d.Intents, d.Row = true, d.Row || d.s.Answers > 0
	}
}
