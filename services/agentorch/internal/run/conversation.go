package run

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/prefix"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

// Conversation is a list of messages, with a hash of each prefix of the list, which [Conversation.Links] computes once
// per message. The zero Conversation is empty. Only one goroutine may use it at a time, and it must not be copied.
type Conversation struct {
	messages []*modelv1.ChatMessage
	// links are the links of the first messages, as far as they were requested.
	links []Link
	// told is the number of leading messages that a model has received or returned.
	told int
}

// Link is the hash and the size of a prefix of a conversation.
type Link struct {
	// Hash identifies the messages of the prefix.
	Hash prefix.Hash
	// Count is the number of the messages, Bytes their encoded size in bytes.
	Count, Bytes int
}

// Messages returns the messages. The slice and the messages are immutable.
func (c *Conversation) Messages() []*modelv1.ChatMessage { return c.messages }

// Len returns how many there are.
func (c *Conversation) Len() int { return len(c.messages) }

// Append adds messages at the end.
func (c *Conversation) Append(messages ...*modelv1.ChatMessage) {
	c.messages = append(c.messages, messages...)
}

// Told returns the number of leading messages that a model has received or returned. The service that made the call may
// still have them.
func (c *Conversation) Told() int { return c.told }

// Links returns the links of the first n messages, each with one message more. The caller must not change the slice. It
// fails if a message cannot be encoded, and panics if there are fewer messages.
func (c *Conversation) Links(n int) ([]Link, error) {
	for len(c.links) < n {
		var last Link
		if made := len(c.links); made > 0 {
			last = c.links[made-1]
		}
		digest, size, err := prefix.DigestOf(c.messages[last.Count])
		if err != nil {
			return nil, err
		}
		c.links = append(c.links, Link{Hash: last.Hash.Next(digest), Count: last.Count + 1, Bytes: last.Bytes + size})
	}
	return c.links[:n:n], nil
}

// set replaces the messages. It keeps the links of the common prefix.
func (c *Conversation) set(messages []*modelv1.ChatMessage) {
	same := 0
	for same < min(len(c.messages), len(messages)) && messages[same] == c.messages[same] {
		same++
	}
	if same < c.told {
		c.told = 0 // No call ended there.
	}
	made := min(same, len(c.links))
	c.messages, c.links = messages, c.links[:made:made] // holders of the old slices keep them
}

func (f *Frame) messageAdded(a *agentv1.MessageAdded) {
	m := a.GetContent()
	f.conversation.add(a)
	if answered := chat.FirstMessage(f.answer); answered != nil && m.GetId() == answered.GetId() {
		f.output = f.answer // the conversation took the answer
		if same := m == answered || proto.Equal(m, answered); same && a.Index == nil {
			f.conversation.answered()
		}
	}
	f.resultAdded(m)
	f.posted(m)
}

// add adds a message, mostly at the end.
func (c *Conversation) add(a *agentv1.MessageAdded) {
	if a.Index == nil {
		c.Append(a.GetContent())
		return
	}
	c.set(agent.Added(c.messages, a))
}

// answered notes that the last message is the answer to those before.
func (c *Conversation) answered() {
	if c.told > 0 && c.told == c.Len()-1 {
		c.told++
	}
}

// follow folds an event into the input of the agent's model.
func (f *Frame) follow(e *agentv1.Event) {
	input, diverged := agent.Input(f.Input(), f.Messages(), f.sent != nil, e)
	if !diverged {
		f.sent = nil
		return
	}
	if f.sent == nil {
		f.sent = &Conversation{}
	}
	f.sent.set(input)
	answer := chat.FirstMessage(f.answer)
	if a := e.GetMessageAdded(); a != nil && a.Index == nil && answer != nil && a.GetContent().GetId() == answer.GetId() {
		f.sent.answered()
	}
}

// PostedContent merges an operator's messages into the content of one message: one text, or the parts of all messages
// if one of them has parts, such as a picture.
func PostedContent(posted []*modelv1.ChatMessage) *contentv1.MessageContent {
	if len(posted) == 1 {
		return posted[0].GetContent()
	}
	texts, list := make([]string, len(posted)), &contentv1.ContentList{}
	plain := true
	for i, m := range posted {
		texts[i] = chat.Text(m)
		plain = plain && m.GetContent().GetList() == nil
		list.Parts = append(list.Parts, chat.Parts(m.GetContent())...)
	}
	if plain {
		return chat.TextContent(strings.Join(texts, "\n\n"))
	}
	return &contentv1.MessageContent{Form: &contentv1.MessageContent_List{List: list}}
}

// posted removes an operator's messages from the list once the conversation has a message with their content. The rest
// stay.
func (f *Frame) posted(m *modelv1.ChatMessage) {
	if m.GetSource() != modelv1.MessageSource_MESSAGE_SOURCE_OPERATOR {
		return
	}
	for n := len(f.Posted); n > 0; n-- {
		if proto.Equal(PostedContent(f.Posted[:n]), m.GetContent()) {
			f.Posted = f.Posted[n:]
			return
		}
	}
}

func (f *Frame) historyChanged(h *agentv1.HistoryChanged) {
	f.conversation.set(agent.Changed(f.conversation.messages, h))
	for _, m := range h.GetContent().GetMessages() {
		if first := chat.FirstMessage(f.output); first != nil && first.GetId() == m.GetId() && first != m {
			f.output = proto.CloneOf(f.output)
			f.output.Choices[0].Message = m
		}
	}
}

func (f *Frame) outputSet(o *agentv1.OutputSet) {
	switch {
	case o.GetContent() != nil:
		f.output = o.GetContent()
	case o.Completion != nil:
		changed := proto.CloneOf(f.output)
		if changed == nil {
			changed = &modelv1.ModelOutput{}
		}
		changed.Completion = o.GetCompletion()
		f.output = changed
	}
}
