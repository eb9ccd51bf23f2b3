package compaction

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/summary"
	"github.com/evalfleet/evalfleet/pkg/tokens"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/history"
)

// addendumsSlot is where a prompt gets the instructions of the strategy.
const addendumsSlot = "{addendums}"

// summaryPrompt asks for a summary with which another can continue the work.
const summaryPrompt = summary.Prompt + "\n\n" + addendumsSlot

// memoryAddendum asks for the notes that the model saved with the tool memory.
const memoryAddendum = `List the files that you saved with the tool memory: for each its path, what it contains, and when to read it.`

const (
	// maxShrinks bounds how often results of tools are made smaller for the model that summarises.
	maxShrinks = 12
	// shrinkMarker replaces the middle of a result.
	shrinkMarker = "\n\n[… the middle of this result was left out for the summary …]\n\n"
	mediaLeftOut = "[media left out for the summary]"
	// outputReserve is how many tokens the summary itself needs, if no bound is configured.
	outputReserve = 4096
	charsPerToken = 4
)

// summaryRequest returns the messages of the call that summarises. Window is the context window of its model and
// reserve the room for the summary, in tokens; 0 is unknown. The last summary replaces what came before it.
func (p *Params) summaryRequest(messages []*modelv1.ChatMessage, window, reserve int64, count func([]*modelv1.ChatMessage) int64) []*modelv1.ChatMessage {
	system, input, rest := history.Partition(messages)
	for i, m := range slices.Backward(rest) {
		if summary.Is(m) {
			rest = rest[i:]
			break
		}
	}
	addendums := p.Instructions
	if *p.Memory && slices.ContainsFunc(rest, func(m *modelv1.ChatMessage) bool { return slices.ContainsFunc(m.GetToolCalls(), callsMemory) }) {
		addendums = strings.TrimPrefix(addendums+"\n\n"+memoryAddendum, "\n\n")
	}
	prompt := p.Prompt
	if prompt == "" {
		prompt = summaryPrompt
	}
	ask := agent.Says(modelv1.Role_ROLE_USER, strings.TrimSpace(strings.ReplaceAll(prompt, addendumsSlot, addendums)))
	request := slices.Concat(system, input, rest, []*modelv1.ChatMessage{ask})
	if window == 0 {
		return request
	}
	if reserve == 0 {
		reserve = outputReserve
	}
	return fit(request, window-min(reserve, window/2), count)
}

// summarised returns the messages that a summary leaves, those that always stay and the summary, and the summary
// itself.
func summarised(messages []*modelv1.ChatMessage, text string) (left []*modelv1.ChatMessage, message *modelv1.ChatMessage) {
	system, input, _ := history.Partition(messages)
	message = summary.Message(text)
	return slices.Concat(system, input, []*modelv1.ChatMessage{message}), message
}

// fit makes the largest results of tools smaller, until the messages have room.
func fit(messages []*modelv1.ChatMessage, room int64, count func([]*modelv1.ChatMessage) int64) []*modelv1.ChatMessage {
	size := count(messages)
	for range maxShrinks {
		if size <= room {
			break
		}
		message, part := largest(messages)
		if message < 0 {
			break
		}
		messages = slices.Clone(messages)
		messages[message] = shrunk(messages[message], part)
		smaller := count(messages)
		if smaller >= size {
			break
		}
		size = smaller
	}
	return messages
}

// largest returns the indexes of the largest part of a tool's result that can be made smaller; -1 if there is none.
func largest(messages []*modelv1.ChatMessage) (message, part int) {
	message, weight := -1, 0
	for i, m := range messages {
		if m.GetRole() != modelv1.Role_ROLE_TOOL {
			continue
		}
		for j, p := range chat.Parts(m.GetContent()) {
			if w := weightOf(p); w > weight {
				message, part, weight = i, j, w
			}
		}
	}
	return message, part
}

// weightOf is the size of a part in characters; 0 if it cannot be made smaller.
func weightOf(part *contentv1.Content) int {
	if text := part.GetText(); text != nil {
		if len(text.GetText())/2 <= len(shrinkMarker) {
			return 0
		}
		return len(text.GetText())
	}
	return int(tokens.Media(part)) * charsPerToken
}

// shrunk returns a copy of a result, with half of a text, or with a text in place of media.
func shrunk(m *modelv1.ChatMessage, part int) *modelv1.ChatMessage {
	changed := proto.CloneOf(m)
	changed.Id = ""
	list := changed.GetContent().GetList()
	if list == nil {
		changed.Content = chat.TextContent(halved(changed.GetContent().GetText()))
		return changed
	}
	text := mediaLeftOut
	if t := list.GetParts()[part].GetText(); t != nil {
		text = halved(t.GetText())
	}
	list.Parts[part] = chat.TextPart(text)
	return changed
}

func halved(text string) string { return headtail.Mark(text, len(text)/2, shrinkMarker) }
