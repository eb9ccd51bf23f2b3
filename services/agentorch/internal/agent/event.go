package agent

import (
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Add is the event that appends a message to the conversation.
func Add(message *modelv1.ChatMessage) *agentv1.Event {
	return &agentv1.Event{Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Role: message.GetRole(), Content: message}}}
}

// Insert is the event that puts a message before the one at index.
func Insert(index int, message *modelv1.ChatMessage) *agentv1.Event {
	event := Add(message)
	event.GetMessageAdded().Index = new(int32(index))
	return event
}

// Edit is the event that replaces messages with those of the same id and removes others. Reason is a machine-readable
// word.
func Edit(reason string, replaced []*modelv1.ChatMessage, removedIDs []string) *agentv1.Event {
	change := &agentv1.HistoryChanged{Reason: reason, RemovedIds: removedIDs}
	if len(replaced) > 0 {
		change.Content = &agentv1.HistoryContent{Messages: replaced}
	}
	return &agentv1.Event{Kind: &agentv1.Event_HistoryChanged{HistoryChanged: change}}
}

// Replace is the event that replaces the whole conversation. It holds the messages that are new or changed; others are
// named.
func Replace(reason string, before, after []*modelv1.ChatMessage) *agentv1.Event {
	change := &agentv1.HistoryChanged{Reason: reason, ReplaceAll: true}
	var fresh []*modelv1.ChatMessage
	if change.Order, fresh = order(before, after); len(fresh) > 0 {
		change.Content = &agentv1.HistoryContent{Messages: fresh}
	}
	return &agentv1.Event{Kind: &agentv1.Event_HistoryChanged{HistoryChanged: change}}
}

// order returns the ids of the messages in after that were there before, with an empty text for each other message, and
// these others.
func order(before, after []*modelv1.ChatMessage) (ids []string, fresh []*modelv1.ChatMessage) {
	known := map[string]*modelv1.ChatMessage{}
	for _, m := range slices.Backward(before) { // If two have one id, look-ups find the first.
		known[m.GetId()] = m
	}
	for _, m := range after {
		if old, ok := known[m.GetId()]; ok && m.GetId() != "" && (old == m || proto.Equal(old, m)) {
			ids = append(ids, m.GetId())
			continue
		}
		ids = append(ids, "")
		fresh = append(fresh, m)
	}
	return ids, fresh
}

// Shorten is the event that reduces a conversation to the messages in after. If these are some of the messages in their
// order, only the ids of the removed messages are recorded.
func Shorten(reason string, before, after []*modelv1.ChatMessage) *agentv1.Event {
	var removed []string
	rest := after
	for _, m := range before {
		if len(rest) > 0 && rest[0] == m {
			rest = rest[1:]
		} else {
			removed = append(removed, m.GetId())
		}
	}
	if len(rest) > 0 {
		return Replace(reason, before, after)
	}
	return Edit(reason, nil, removed)
}

// Compacted returns the event that replaces the input of the agent's model: before by after. It completes c, which
// names the messages of before that stay, and holds the others.
func Compacted(before, after []*modelv1.ChatMessage, c *agentv1.Compacted) *agentv1.Event {
	var fresh []*modelv1.ChatMessage
	if c.Order, fresh = order(before, after); len(fresh) > 0 {
		c.Content = &agentv1.HistoryContent{Messages: fresh}
	}
	return &agentv1.Event{Kind: &agentv1.Event_Compacted{Compacted: c}}
}

// Complete is the event that changes the completion of the output.
func Complete(reason, completion string) *agentv1.Event {
	return &agentv1.Event{Kind: &agentv1.Event_OutputSet{OutputSet: &agentv1.OutputSet{Reason: reason, Completion: &completion}}}
}

// Store is the event that sets an entry of the run's store to a JSON value.
func Store(key string, value any) (*agentv1.Event, error) {
	b, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return &agentv1.Event{Kind: &agentv1.Event_StoreChanged{StoreChanged: &agentv1.StoreChanged{
		Keys: []string{key}, Content: &agentv1.StoreContent{Changes: []*toolv1.StoreChange{{Key: key, ValueJson: new(string(b))}}},
	}}}, nil
}

// Note is the event that leaves a text in the transcript. Code is a machine-readable topic.
func Note(source, code, text string) *agentv1.Event {
	b, _ := json.Marshal(text) // a text always has a JSON form
	return &agentv1.Event{Kind: &agentv1.Event_Info{Info: &agentv1.Info{Code: code, Source: source, Content: &agentv1.InfoContent{DataJson: string(b)}}}}
}

// Says is a new message of a role. It gets an id when it is added.
func Says(role modelv1.Role, text string) *modelv1.ChatMessage {
	return &modelv1.ChatMessage{Role: role, Content: chat.TextContent(text)}
}

// SelectionKey is the entry of a run's store under which multiple_choice notes a [Selection], for the scorer choice.
const SelectionKey = "multiple_choice"

// Selection is which choices a model named.
type Selection struct {
	// Selected are their positions in the sample's choices, from 0.
	Selected []int `json:"selected"`
}
