// Package history changes conversations: it trims those that are too long for a model's context, and filters an agent's
// view of another agent's work.
//
// The package is pure. A changed message is a copy without an id, since it is another message; the caller that adds it
// to a conversation gives it one.
package history

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/summary"
)

// DefaultPreserve is the part of a conversation that trimming keeps by default.
const DefaultPreserve = 0.7

// Trim shortens a conversation. System messages and the input stay. Of the rest, the oldest are removed until the part
// preserve is left, and then the messages that have lost their counterpart: results without a call, calls without a
// result, and an answer at the very end. Citations are removed from the remaining texts, since their targets may be
// gone. Trim fails if preserve is outside 0 to 1.
func Trim(messages []*modelv1.ChatMessage, preserve float64) ([]*modelv1.ChatMessage, error) {
	if !(preserve >= 0 && preserve <= 1) {
		return nil, fmt.Errorf("preserve is %v; want a part from 0 to 1", preserve)
	}
	system, input, rest := Partition(messages)
	rest = rest[int(float64(len(rest))*(1-preserve)):]
	rest = pair(rest)
	if n := len(rest); n > 0 && rest[n-1].GetRole() == modelv1.Role_ROLE_ASSISTANT {
		rest = rest[:n-1]
	}
	trimmed := slices.Concat(system, input, rest)
	for i, m := range trimmed {
		trimmed[i] = WithoutCitations(m)
	}
	return trimmed, nil
}

// Partition separates the messages that always stay from the conversation proper. If no message is marked as input, the
// messages up to the first user message are the input.
func Partition(messages []*modelv1.ChatMessage) (system, input, rest []*modelv1.ChatMessage) {
	for _, m := range messages {
		switch {
		case m.GetRole() == modelv1.Role_ROLE_SYSTEM:
			system = append(system, m)
		case m.GetSource() == modelv1.MessageSource_MESSAGE_SOURCE_INPUT && !summary.Is(m):
			input = append(input, m)
		default:
			rest = append(rest, m)
		}
	}
	if len(input) > 0 {
		return system, input, rest
	}
	for len(rest) > 0 && !summary.Is(rest[0]) {
		first := rest[0]
		input, rest = append(input, first), rest[1:]
		if first.GetRole() == modelv1.Role_ROLE_USER {
			break
		}
	}
	return system, input, rest
}

// pair drops results that do not follow the message that called for them, and then calls that have no result.
func pair(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	var (
		kept   []*modelv1.ChatMessage
		caller = -1            // index in kept of the message whose results may follow
		asked  map[string]bool // the ids of its calls
		got    = map[int]map[string]bool{}
	)
	for _, m := range messages {
		switch m.GetRole() { //nolint:exhaustive // the others follow nothing
		case modelv1.Role_ROLE_ASSISTANT:
			caller, asked = len(kept), idsOf(m)
		case modelv1.Role_ROLE_USER:
			caller = -1
		case modelv1.Role_ROLE_TOOL:
			if caller < 0 || len(m.GetToolCallIds()) == 0 || !asked[m.GetToolCallIds()[0]] {
				continue
			}
			if got[caller] == nil {
				got[caller] = map[string]bool{}
			}
			got[caller][m.GetToolCallIds()[0]] = true
		}
		kept = append(kept, m)
	}
	for i, m := range kept {
		if m.GetRole() == modelv1.Role_ROLE_ASSISTANT {
			kept[i] = withCalls(m, got[i])
		}
	}
	return kept
}

// idsOf are the ids of a message's calls.
func idsOf(m *modelv1.ChatMessage) map[string]bool {
	ids := make(map[string]bool, len(m.GetToolCalls()))
	for _, call := range m.GetToolCalls() {
		ids[call.GetId()] = true
	}
	return ids
}

// withCalls keeps only the calls with the given ids.
func withCalls(m *modelv1.ChatMessage, ids map[string]bool) *modelv1.ChatMessage {
	isOther := func(c *toolv1.ToolCall) bool { return !ids[c.GetId()] }
	if !slices.ContainsFunc(m.GetToolCalls(), isOther) {
		return m
	}
	changed := proto.CloneOf(m)
	changed.Id = ""
	changed.ToolCalls = slices.DeleteFunc(changed.GetToolCalls(), isOther)
	return changed
}

// WithoutCitations returns the message without the citations of its texts: a copy without an id, or the message itself
// if it has none.
func WithoutCitations(m *modelv1.ChatMessage) *modelv1.ChatMessage {
	cited := false
	for _, part := range m.GetContent().GetList().GetParts() {
		cited = cited || len(part.GetText().GetCitations()) > 0
	}
	if !cited {
		return m
	}
	changed := proto.CloneOf(m)
	changed.Id = ""
	for _, part := range chat.Parts(changed.GetContent()) {
		if text := part.GetText(); text != nil {
			text.Citations = nil
		}
	}
	return changed
}
