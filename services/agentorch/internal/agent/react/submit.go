package react

import (
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scorewire"
)

// reasonSubmit is the reason of the changes that a submission makes.
const reasonSubmit = "submit"

// submitName is the name by which the model calls the submit tool; empty if there is none.
func (m *machine) submitName() string {
	if m.params.Submit.Off {
		return ""
	}
	return m.params.Submit.Name
}

// Call implements [agent.Machine]: the result of the submit tool is its argument, the answer. The arguments conform to
// the tool's schema.
func (m *machine) Call(_ agent.View, call *toolv1.ToolCall) *toolv1.ToolResult {
	var arguments struct {
		Answer string `json:"answer"`
	}
	result := &toolv1.ToolResult{CallId: call.GetId(), Function: call.GetFunction(), ArgumentsJson: call.GetArgumentsJson()}
	if err := json.Unmarshal([]byte(call.GetArgumentsJson()), &arguments); err != nil {
		result.Content = chat.TextContent("")
		result.Error = &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING, Message: "the answer must be a text"}
		return result
	}
	result.Content = chat.TextContent(arguments.Answer)
	return result
}

// ToolBound implements [agent.Machine]: an answer is never cut.
func (m *machine) ToolBound(function string) (int64, bool) { return 0, function == m.submitName() }

// submission returns the answer of the first submit call that succeeded after the last assistant message.
func (m *machine) submission(run agent.View) (string, bool) {
	if m.params.Submit.Off {
		return "", false
	}
	messages := run.Messages()
	from := max(0, len(messages)-1)
	for from > 0 && messages[from].GetRole() != modelv1.Role_ROLE_ASSISTANT {
		from--
	}
	for _, message := range messages[from:] {
		if m.isResult(message) && message.GetError() == nil {
			return chat.Text(message), true
		}
	}
	return "", false
}

func (m *machine) isResult(message *modelv1.ChatMessage) bool {
	return message.GetRole() == modelv1.Role_ROLE_TOOL && message.GetFunction() == m.submitName()
}

// submit makes an answer the completion and, unless the submit call stays, a part of the message that submitted it.
func (m *machine) submit(run agent.View, answer string) []*agentv1.Event {
	submit := m.params.Submit
	completion := answer
	if !submit.AnswerOnly {
		completion = strings.TrimSpace(chat.Completion(run.Output()) + *submit.Delimiter + answer)
	}
	events := []*agentv1.Event{agent.Complete(reasonSubmit, completion)}
	if message := chat.LastAssistant(run.Messages()); message != nil && !submit.Keep {
		events = append(events, agent.Edit(reasonSubmit, []*modelv1.ChatMessage{withAnswer(message, *submit.Delimiter, answer)}, nil))
	}
	return events
}

func withAnswer(message *modelv1.ChatMessage, delimiter, answer string) *modelv1.ChatMessage {
	changed := proto.CloneOf(message)
	if list := changed.GetContent().GetList(); list != nil {
		list.Parts = append(list.Parts, chat.TextPart(answer))
		return changed
	}
	changed.Content = chat.TextContent(strings.TrimSpace(changed.GetContent().GetText() + delimiter + answer))
	return changed
}

// withoutSubmit removes submit calls and their results from the conversation as it is after the given events.
func (m *machine) withoutSubmit(run agent.View, events []*agentv1.Event) []*agentv1.Event {
	var (
		changed []*modelv1.ChatMessage
		removed []string
	)
	for _, message := range after(run.Messages(), events) {
		switch {
		case m.isResult(message):
			removed = append(removed, message.GetId())
		case slices.ContainsFunc(message.GetToolCalls(), m.isCall):
			changed = append(changed, m.withoutCalls(message))
		}
	}
	if changed == nil && removed == nil {
		return nil
	}
	return []*agentv1.Event{agent.Edit(reasonSubmit, changed, removed)}
}

// after returns the conversation with the changes that events make to messages they name.
func after(messages []*modelv1.ChatMessage, events []*agentv1.Event) []*modelv1.ChatMessage {
	for _, e := range events {
		switch k := e.GetKind().(type) {
		case *agentv1.Event_MessageAdded:
			messages = append(slices.Clip(messages), k.MessageAdded.GetContent())
		case *agentv1.Event_HistoryChanged:
			messages = agent.Changed(messages, k.HistoryChanged)
		}
	}
	return messages
}

func (m *machine) isCall(call *toolv1.ToolCall) bool { return call.GetFunction() == m.submitName() }

// withoutCalls drops the submit calls of a message, and the reasoning that led to them: some providers refuse reasoning
// without the call that followed it.
func (m *machine) withoutCalls(message *modelv1.ChatMessage) *modelv1.ChatMessage {
	changed := proto.CloneOf(message)
	changed.ToolCalls = slices.DeleteFunc(changed.GetToolCalls(), m.isCall)
	changed.ToolCallsRemoved = len(changed.GetToolCalls()) == 0
	if list := changed.GetContent().GetList(); list != nil {
		isReasoning := func(p *contentv1.Content) bool { return p.GetReasoning() != nil }
		for i := len(list.GetParts()) - 1; i >= 0; i-- {
			if isReasoning(list.GetParts()[i]) {
				list.Parts = slices.Delete(list.GetParts(), i, i+1)
				break
			}
		}
	}
	return changed
}

// value is the number of a score: 1 is right.
func (m *machine) value(v *agentv1.ScoreValue) float64 {
	if m.params.Attempts.Values != nil {
		return m.params.Attempts.Values[v.GetText()]
	}
	number, _ := scorewire.ToValue(v).Float()
	return number
}
