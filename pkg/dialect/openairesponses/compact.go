package openairesponses

import (
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// compactionKind is the type of the data that a compaction item becomes.
const compactionKind = "openai_compact"

// AppendCompact appends the body of a request to compact the conversation, with instructions, which may be empty:
// https://platform.openai.com/docs/api-reference/responses/compact. It has neither tools nor options.
func (r *Request) AppendCompact(dst []byte, instructions string) ([]byte, error) {
	bare := &Request{Request: dialect.Request{Model: r.Model, Messages: r.Messages}, Phases: r.Phases}
	e := bare.encoder(dst)
	e.Body.BeginObject()
	e.Member("model", func() { e.Body.Text(r.Model) })
	if err := e.input(); err != nil {
		return nil, err
	}
	e.Body.TextUnlessEmpty("instructions", instructions)
	e.Body.EndObject()
	return e.Body.Bytes(), nil
}

// Compaction is the answer to a request to compact a conversation: a [dialect.Response] that DecodeResponse returns.
type Compaction interface {
	// Compacted returns the messages in place of the conversation, and the usage, nil if there is none. Messages of the
	// system are left out: the caller has them. It fails with *dialect.MalformedError for an answer that compacted
	// nothing, or that has an item which messages cannot express.
	Compacted(tools []*toolv1.ToolInfo) ([]*modelv1.ChatMessage, *modelv1.ModelUsage, error)
}

var _ Compaction = (*response)(nil)

// Compacted implements Compaction.
func (r *response) Compacted(tools []*toolv1.ToolInfo) ([]*modelv1.ChatMessage, *modelv1.ModelUsage, error) {
	c := &compacted{tools: tools}
	found := false
	for i := range r.Items {
		it := &r.Items[i]
		switch {
		case it.Type == typeCompacted:
			found = true
			c.add(compactionMessage(it))
		case it.Type == typeMessage && (it.Role == "developer" || it.Role == "system"):
		case it.Type == typeMessage && it.Role == "user":
			content, err := it.Content.read(fmt.Sprintf("output[%d].content", i))
			if err != nil {
				return nil, nil, malformed(err)
			}
			c.add(&modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: content})
		case it.Type == typeResult:
			content, err := it.Output.read(fmt.Sprintf("output[%d].output", i))
			if err != nil {
				return nil, nil, malformed(err)
			}
			c.add(&modelv1.ChatMessage{Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{it.CallID}, Content: content})
		case readItems[it.Type]:
			c.turn = append(c.turn, *it)
		default:
			return nil, nil, malformed(fmt.Errorf("output[%d] is of the type %q, which is not known here", i, it.Type))
		}
	}
	c.flush()
	switch {
	case c.err != nil:
		return nil, nil, c.err
	case !found:
		return nil, nil, malformed(fmt.Errorf("no item of the type %q is in it", typeCompacted))
	}
	return c.messages, r.Usage.message(), nil
}

// compacted collects items as messages. Neighbouring items of the assistant are one message.
type compacted struct {
	tools    []*toolv1.ToolInfo
	messages []*modelv1.ChatMessage
	turn     []item
	err      error
}

// add adds a message that is not the assistant's.
func (c *compacted) add(m *modelv1.ChatMessage) {
	c.flush()
	m.Id, m.Source = chat.NewID(), modelv1.MessageSource_MESSAGE_SOURCE_GENERATE
	c.messages = append(c.messages, m)
}

// flush ends the assistant's message.
func (c *compacted) flush() {
	if len(c.turn) == 0 {
		return
	}
	output, err := (&response{Status: statusCompleted, Items: c.turn}).Output(c.tools)
	c.turn = nil
	if err != nil {
		c.err = err
		return
	}
	if m := chat.FirstMessage(output); len(m.GetContent().GetList().GetParts())+len(m.GetToolCalls()) > 0 {
		c.messages = append(c.messages, m)
	}
}

// compactionMessage is the message for a compaction item: a user's, whose content is data.
func compactionMessage(it *item) *modelv1.ChatMessage {
	metadata, data := &orderedjson.Object{}, &orderedjson.Object{}
	metadata.Set("type", compactionKind)
	if it.ID != "" {
		metadata.Set("id", it.ID)
	}
	metadata.Set("encrypted_content", it.Seal)
	data.Set(dialect.CompactionData, metadata)
	part := &contentv1.Content{Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: string(orderedjson.Append(nil, data))}}}
	return &modelv1.ChatMessage{Id: chat.NewID(), Role: modelv1.Role_ROLE_USER, Content: chat.ListContent(part)}
}

// compactionItem is the item that a part was made of; empty for other parts.
func compactionItem(part *contentv1.Content) string {
	metadata := dialect.DataOf(part, dialect.CompactionData, compactionKind)
	if metadata == nil {
		return ""
	}
	w := jsonwrite.NewWriter(256)
	w.BeginObject()
	w.TextMember("type", typeCompacted)
	for _, name := range []string{"id", "encrypted_content"} {
		if value, _ := metadata.Get(name); value != nil {
			w.RawMember(name, string(orderedjson.Append(nil, value)))
		}
	}
	w.EndObject()
	return w.String()
}

// readCompaction reads a compaction item that a client sends back.
func readCompaction(it *item, param string) (*modelv1.ChatMessage, error) {
	if it.Seal == "" {
		return nil, dialect.Required(param + ".encrypted_content")
	}
	return compactionMessage(it), nil
}
