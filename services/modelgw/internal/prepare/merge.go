package prepare

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// combinedFrom is the metadata of a merged message: the ids of the two that it was made from.
const combinedFrom = "combined_from"

// Merge merges neighbouring messages with the same role, for the given roles.
func Merge(messages []*modelv1.ChatMessage, user, assistant, system bool) []*modelv1.ChatMessage {
	wanted := map[modelv1.Role]bool{
		modelv1.Role_ROLE_USER: user, modelv1.Role_ROLE_ASSISTANT: assistant, modelv1.Role_ROLE_SYSTEM: system,
	}
	if !user && !assistant && !system {
		return messages
	}
	merged := make([]*modelv1.ChatMessage, 0, len(messages))
	for len(messages) > 0 {
		end := 1
		for role := messages[0].GetRole(); wanted[role] && end < len(messages) && messages[end].GetRole() == role; {
			end++
		}
		merged, messages = append(merged, combine(messages[:end])), messages[end:]
	}
	return merged
}

// combine makes one message of a run.
func combine(run []*modelv1.ChatMessage) *modelv1.ChatMessage {
	if len(run) == 1 {
		return run[0]
	}
	all := &modelv1.ChatMessage{Id: chat.NewID(), Role: run[0].GetRole(), Content: joinContent(run), MetadataJson: joinMetadata(run)}
	for _, m := range run {
		all.Source, all.Model = cmp.Or(m.GetSource(), all.Source), cmp.Or(m.GetModel(), all.Model)
		all.ToolCalls, all.ToolCallIds = append(all.ToolCalls, m.GetToolCalls()...), append(all.ToolCallIds, m.GetToolCallIds()...)
	}
	return all
}

// joinContent joins the plain texts at the beginning of a run by line breaks. If other content follows, all is a list
// of parts.
func joinContent(run []*modelv1.ChatMessage) *contentv1.MessageContent {
	var texts []string
	for len(run) > 0 && run[0].GetContent().GetList() == nil {
		texts, run = append(texts, run[0].GetContent().GetText()), run[1:]
	}
	text := strings.Join(texts, "\n")
	if len(run) == 0 {
		return chat.TextContent(text)
	}
	var parts []*contentv1.Content
	if text != "" {
		parts = append(parts, chat.TextPart(text))
	}
	for _, m := range run {
		if m.GetContent().GetList() != nil || m.GetContent().GetText() != "" { // An empty text is no part.
			parts = append(parts, chat.Parts(m.GetContent())...)
		}
	}
	return chat.ListContent(parts...)
}

// joinMetadata overlays the earlier metadata of a run with the later, and records the origin of the message: what was
// made of all before the last one, and that.
func joinMetadata(run []*modelv1.ChatMessage) string {
	joined := &orderedjson.Object{}
	before := ""
	for i, m := range run {
		object, err := orderedjson.DecodeObject([]byte(m.GetMetadataJson()))
		if err == nil { // else it has no metadata
			for name, value := range object.All() {
				joined.Set(name, value)
			}
		}
		switch i {
		case 0:
			before = m.GetId()
		default:
			joined.Set(combinedFrom, []any{before, m.GetId()})
			before = chat.NewID()
		}
	}
	document, _ := json.Marshal(joined)
	return string(document)
}
