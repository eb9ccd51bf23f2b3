package react

import (
	"fmt"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/compaction"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/history"
)

// maxRefusals in a row end the agent.
const maxRefusals = 3

// machine is an active react agent.
type machine struct {
	agent.Track
	params   params
	truncate func([]*modelv1.ChatMessage) ([]*modelv1.ChatMessage, error) // nil stops where the context is full

	// settled is set once the result of the last effect is in the conversation, so that the next turn can begin.
	settled bool
	// asked counts how often the present question was repeated after a refusal.
	asked int
	// refusals counts refusals in a row that are in the conversation; an overflow of the context does not end the row.
	refusals int
	// guide is the worker that decides how to continue; nil if there is none.
	guide *agentv1.WorkerRef
	// submissions counts accepted submit calls.
	submissions int
	// compaction keeps the model's input short; nil if nothing does. compacted is set from a compaction for a full context
	// until an answer is in the conversation: if the context is full again then, another one would not help.
	compaction *compaction.Handler
	compacted  bool
}

func newMachine(step *agentv1.AgentRef) (*machine, error) {
	m := &machine{}
	if err := agent.Params(step, &m.params); err != nil {
		return nil, err
	}
	if name := m.params.OnContinue.worker(); name != "" {
		if m.guide = pinned(step, name); m.guide == nil {
			return nil, fmt.Errorf("the worker %s of on_continue is not pinned", name)
		}
	}
	if p := m.params.Compaction; p != nil {
		m.compaction = &compaction.Handler{Params: *p, Model: m.params.Model, Windows: step.GetContextWindows(), Counter: compaction.Rough{}}
	}
	var err error
	m.truncate, err = truncation(m.params.Truncation)
	return m, err
}

func truncation(names truncationParam) (func([]*modelv1.ChatMessage) ([]*modelv1.ChatMessage, error), error) {
	if len(names) == 0 || names[0] == truncateDisabled {
		return nil, nil
	}
	if names[0] == truncateAuto {
		return func(messages []*modelv1.ChatMessage) ([]*modelv1.ChatMessage, error) {
			return history.Trim(messages, history.DefaultPreserve)
		}, nil
	}
	var filters []history.Filter
	for _, name := range names {
		filter, err := history.FilterByName(name)
		if err != nil {
			return nil, err
		}
		filters = append(filters, filter)
	}
	return func(messages []*modelv1.ChatMessage) ([]*modelv1.ChatMessage, error) {
		for _, filter := range filters {
			messages = filter(messages)
		}
		return messages, nil
	}, nil
}

// Apply implements [agent.Machine].
func (m *machine) Apply(e *agentv1.Event) {
	if m.compaction != nil {
		m.compaction.Apply(e)
	}
	if m.compacting(e) {
		return
	}
	left := m.At == agent.Answered && !m.settled // an answer that was not taken
	m.Track.Apply(e)
	switch k := e.GetKind().(type) {
	case *agentv1.Event_Interrupted:
		if m.At == agent.Interrupted {
			m.settled, m.asked = false, 0
		}
	case *agentv1.Event_ModelOutcome:
		if k.ModelOutcome.GetInterrupted() {
			break
		}
		if left && k.ModelOutcome.GetError() == nil {
			m.asked++
		}
		m.settled = m.settled && k.ModelOutcome.GetError() != nil
	case *agentv1.Event_ToolsReviewed, *agentv1.Event_ScoreOutcome, *agentv1.Event_WorkerOutcome:
		m.settled = false
	case *agentv1.Event_HistoryChanged:
		m.settled = true
	case *agentv1.Event_MessageAdded:
		switch k.MessageAdded.GetRole() { //nolint:exhaustive // results of tools settle nothing
		case modelv1.Role_ROLE_ASSISTANT:
			m.took()
			m.settled = true
		case modelv1.Role_ROLE_SYSTEM, modelv1.Role_ROLE_USER:
			m.settled = true
		}
	case *agentv1.Event_OutputSet:
		if k.OutputSet.GetReason() == reasonSubmit {
			m.submissions++
		}
	}
}

// compacting folds the events of a compaction, and reports whether this is one. The answer that found the context full
// is dropped with it.
func (m *machine) compacting(e *agentv1.Event) bool {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_ModelIntent:
		return k.ModelIntent.GetPurpose() == agent.PurposeCompaction
	case *agentv1.Event_ModelOutcome:
		return k.ModelOutcome.GetIntent() != m.Asking()
	case *agentv1.Event_Compacted:
		if m.At == agent.Answered && !m.settled {
			m.settled, m.compacted = true, true
		}
		return true
	}
	return false
}

// took notes that the last answer is in the conversation.
func (m *machine) took() {
	m.asked = 0
	m.compacted = m.compacted && m.StopReason == modelv1.StopReason_STOP_REASON_MODEL_LENGTH
	switch m.StopReason {
	case modelv1.StopReason_STOP_REASON_CONTENT_FILTER:
		m.refusals++
	case modelv1.StopReason_STOP_REASON_MODEL_LENGTH: // The question was not answered.
	default:
		m.refusals = 0
	}
}

// Next implements [agent.Machine].
func (m *machine) Next(run agent.View) (agent.Action, error) {
	switch {
	case m.settled:
		return m.turn(run)
	case m.At == agent.Answered:
		return m.answered(run)
	case m.At == agent.Called:
		return m.called(run)
	case m.At == agent.Scored:
		return m.scored(run)
	case m.At == agent.Told:
		return m.told(run)
	case m.At == agent.Interrupted:
		return agent.Action{Then: agent.Wait{}}, nil
	case m.params.Prompt.None:
		return m.turn(run)
	}
	system := m.params.Prompt.system(m.submitName(), false)
	return agent.Action{Events: []*agentv1.Event{agent.Insert(0, agent.Says(modelv1.Role_ROLE_SYSTEM, system))}}, nil
}

// turn begins a turn. Without a user message there is nothing to answer, so it waits for an operator's message.
func (m *machine) turn(run agent.View) (agent.Action, error) {
	isUser := func(m *modelv1.ChatMessage) bool { return m.GetRole() == modelv1.Role_ROLE_USER }
	if !slices.ContainsFunc(run.Messages(), isUser) { // It is at the beginning, mostly.
		return agent.Action{Then: agent.Wait{}}, nil
	}
	if m.compaction != nil {
		if action, ready, err := m.compaction.Next(run, false); !ready {
			return action, err
		}
	}
	return agent.Action{Then: m.ask()}, nil
}

func (m *machine) ask() agent.Generate { return agent.Generate{Model: m.params.Model} }

// Asks implements [agent.Asking].
func (m *machine) Asks() []agent.Generate {
	asks := []agent.Generate{m.ask()}
	if m.compaction != nil {
		asks = append(asks, m.compaction.Asks()...)
	}
	return asks
}

// answered takes the model's answer.
func (m *machine) answered(run agent.View) (agent.Action, error) {
	refused := m.StopReason == modelv1.StopReason_STOP_REASON_CONTENT_FILTER
	if refused && m.asked < m.params.RetryRefusals {
		return agent.Action{Then: m.ask()}, nil
	}
	message := chat.FirstMessage(run.Answer())
	took := agent.Add(message)
	switch {
	case m.StopReason == modelv1.StopReason_STOP_REASON_MODEL_LENGTH:
		return m.overflow(run, message)
	case refused && m.refusals+1 >= maxRefusals:
		return m.done(run, took), nil
	case len(message.GetToolCalls()) > 0:
		return agent.Action{Events: []*agentv1.Event{took}, Then: agent.CallTools{}}, nil
	case m.guide != nil:
		return agent.Action{Events: []*agentv1.Event{took}, Then: agent.Ask{Worker: m.guide}}, nil
	case m.params.OnContinue == nil:
		return m.done(run, took), nil
	}
	more := agent.Says(modelv1.Role_ROLE_USER, fill(m.params.OnContinue.Text, m.submitName()))
	return agent.Action{Events: []*agentv1.Event{took, agent.Add(more)}}, nil
}

// overflow makes room in a full context, or stops.
func (m *machine) overflow(run agent.View, message *modelv1.ChatMessage) (agent.Action, error) {
	full := "the model's context window is full; the agent stops"
	if m.compaction != nil && !m.compacted {
		action, _, err := m.compaction.Next(run, true)
		if err == nil {
			return action, nil
		}
		full += "; " + err.Error()
	}
	events := []*agentv1.Event{agent.Add(message)}
	if m.truncate != nil {
		before := run.Messages()
		after, err := m.truncate(before)
		if err != nil {
			return agent.Action{}, err
		}
		events = append(events, agent.Shorten("trim", append(slices.Clip(before), message), after))
		if len(after) < len(before) {
			events = append(events, agent.Note(source, "overflow-trim", "the model's context window was full; the history was cut, and the agent goes on"))
			return agent.Action{Events: events}, nil
		}
	}
	events = append(events, agent.Note(source, "overflow-stop", full))
	return m.done(run, events...), nil
}

// called continues after tool calls.
func (m *machine) called(run agent.View) (agent.Action, error) {
	answer, submitted := m.submission(run)
	switch {
	case submitted:
	case m.guide != nil:
		return agent.Action{Then: agent.Ask{Worker: m.guide}}, nil
	default:
		return m.turn(run)
	}
	events := m.submit(run, answer)
	if m.submissions+1 >= m.params.Attempts.Attempts {
		return m.done(run, events...), nil
	}
	return agent.Action{Events: events, Then: agent.Score{}}, nil
}

// scored continues after a submission was scored.
func (m *machine) scored(run agent.View) (agent.Action, error) {
	if scores := run.Scores(); len(scores) > 0 && m.value(scores[0].GetScore().GetValue()) == 1 {
		return m.done(run), nil
	}
	wrong := agent.Says(modelv1.Role_ROLE_USER, *m.params.Attempts.Incorrect)
	action := agent.Action{Events: []*agentv1.Event{agent.Add(wrong)}}
	if m.guide != nil {
		action.Then = agent.Ask{Worker: m.guide}
	}
	return action, nil
}

// done ends the step, and removes the submissions from the conversation if they must not stay.
func (m *machine) done(run agent.View, events ...*agentv1.Event) agent.Action {
	if !m.params.Submit.Off && !m.params.Submit.Keep {
		events = append(events, m.withoutSubmit(run, events)...)
	}
	return agent.Action{Events: events, Then: agent.Done{}}
}

// source names the agent in its notes.
const source = "react"
