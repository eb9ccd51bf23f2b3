package prepare

import (
	"encoding/json"
	"slices"

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
	for _, m := range messages {
		if before := len(merged) - 1; before >= 0 && wanted[m.GetRole()] && merged[before].GetRole() == m.GetRole() {
			merged[before] = combine(merged[before], m)
		} else {
			merged = append(merged, m)
		}
	}
	return merged
}

func combine(a, b *modelv1.ChatMessage) *modelv1.ChatMessage {
	source := a.GetSource()
	if b.GetSource() != modelv1.MessageSource_MESSAGE_SOURCE_UNSPECIFIED {
		source = b.GetSource()
	}
	model := a.GetModel()
	if b.GetModel() != "" {
		model = b.GetModel()
	}
	return &modelv1.ChatMessage{
		Id:           chat.NewID(),
		Role:         a.GetRole(),
		Content:      joinContent(a.GetContent(), b.GetContent()),
		Source:       source,
		MetadataJson: joinMetadata(a, b),
		ToolCalls:    slices.Concat(a.GetToolCalls(), b.GetToolCalls()),
		Model:        model,
		ToolCallIds:  slices.Concat(a.GetToolCallIds(), b.GetToolCallIds()),
	}
}

// joinContent joins two plain texts by a line break; else it is a list of the parts of both.
func joinContent(a, b *contentv1.MessageContent) *contentv1.MessageContent {
	if a.GetList() == nil && b.GetList() == nil {
		return chat.TextContent(a.GetText() + "\n" + b.GetText())
	}
	return chat.ListContent(slices.Concat(chat.Parts(a), chat.Parts(b))...)
}

// joinMetadata overlays the earlier metadata with the later, and records the origin of the message.
func joinMetadata(a, b *modelv1.ChatMessage) string {
	joined := &orderedjson.Object{}
	for _, m := range []*modelv1.ChatMessage{a, b} {
		object, err := orderedjson.DecodeObject([]byte(m.GetMetadataJson()))
		if err != nil {
			continue // no metadata
		}
		for name, value := range object.All() {
			joined.Set(name, value)
		}
	}
	joined.Set(combinedFrom, []any{a.GetId(), b.GetId()})
	document, _ := json.Marshal(joined)
	return string(document)
}
