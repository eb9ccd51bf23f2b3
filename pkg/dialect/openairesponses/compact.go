package openairesponses

import (
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// kept are the items that are kept as data.
var kept = dialect.KeptBlocks{typeCompacted: {Member: dialect.CompactionData, Type: "openai_compact"}}

// AppendCompact appends the body of a request to compact the conversation, with instructions, which may be empty:
// https://platform.openai.com/docs/api-reference/responses/compact. It has neither tools nor options.
func (r *Request) AppendCompact(dst []byte, instructions string) ([]byte, error) {
	bare := &Request{Request: dialect.Request{Model: r.Model, Messages: r.Messages}, Phases: r.Phases}
	e := bare.encoder(dst)
	e.Body.BeginObject()
	e.Member("model", func() { e.Body.Text(r.Model) })
	e.input()
	e.Body.TextUnlessEmpty("instructions", instructions)
	e.Body.EndObject()
	return e.Written()
}

// Compaction is the answer to a request to compact a conversation: a [dialect.Response] that DecodeResponse returns.
type Compaction interface {
	// Compacted returns the messages in place of the conversation, and the usage, nil if there is none. Messages of the
	// system are left out: the caller has them. It fails with *dialect.MalformedError for an answer that compacted
	// nothing, or that has an item which messages cannot express.
	Compacted(tools []*toolv1.ToolInfo) ([]*modelv1.ChatMessage, *modelv1.ModelUsage, error)
}

var _ Compaction = (*response)(nil)

// Compacted implements Compaction. Neighbouring items of the assistant are one message.
func (r *response) Compacted(tools []*toolv1.ToolInfo) (messages []*modelv1.ChatMessage, _ *modelv1.ModelUsage, err error) {
	turn, found := &response{Status: statusCompleted}, false
	flush := func() {
		output, _ := turn.Output(tools) // never fails
		if m := chat.FirstMessage(output); len(m.GetContent().GetList().GetParts())+len(m.GetToolCalls()) > 0 {
			messages = append(messages, m)
		}
		turn.Items = nil
	}
	for i := range r.Items {
		it, param := &r.Items[i], fmt.Sprintf("output[%d]", i)
		m := &modelv1.ChatMessage{}
		switch {
		case it.Type == typeCompacted && it.Seal == "":
			err = fmt.Errorf("%s has no encrypted_content", param)
		case it.Type == typeCompacted:
			found, m = true, compactionMessage(it)
		case it.Type == typeMessage && (it.Role == "developer" || it.Role == "system"):
			continue
		case it.Type == typeMessage && it.Role == "user":
			m.Role = modelv1.Role_ROLE_USER
			m.Content, err = it.Content.read(param + ".content")
		case it.Type == typeResult:
			m.Role, m.ToolCallIds = modelv1.Role_ROLE_TOOL, []string{it.CallID}
			m.Content, err = it.Output.read(param + ".output")
		case readItems[it.Type]:
			turn.Items = append(turn.Items, *it)
			continue
		default:
			err = fmt.Errorf("%s is of the type %q, which is not known here", param, it.Type)
		}
		if err != nil {
			return nil, nil, malformed(err)
		}
		flush()
		m.Id, m.Source = chat.NewID(), modelv1.MessageSource_MESSAGE_SOURCE_GENERATE
		messages = append(messages, m)
	}
	flush()
	if !found {
		return nil, nil, malformed(fmt.Errorf("no item of the type %q is in it", typeCompacted))
	}
	return messages, r.Usage.message(), nil
}

// compactionMessage is the message for a compaction item: a user's, whose content is data.
func compactionMessage(it *item) *modelv1.ChatMessage {
	var w jsonwrite.Writer
	w.BeginObject()
	w.TextMember("type", typeCompacted)
	w.TextUnlessEmpty("id", it.ID)
	w.TextMember("encrypted_content", it.Seal)
	w.EndObject()
	m := chat.User("")
	m.Content = chat.ListContent(kept.Data(typeCompacted, w.Bytes()))
	return m
}

// Compacted implements dialect.Compactor.
func (Codec) Compacted(summary string) *contentv1.Content {
	m := compactionMessage(&item{ID: newID("cmp_"), Seal: dialect.Seal(chat.TextPart(summary))})
	return m.GetContent().GetList().GetParts()[0]
}

// AppendCompactResponse implements dialect.Compactor.
func (Codec) AppendCompactResponse(dst []byte, said []*modelv1.ChatMessage, output *modelv1.ModelOutput, meta dialect.ResponseMeta) ([]byte, error) {
	e := (&Request{}).encoder(dst)
	e.Body.BeginObject()
	e.Body.TextMember("id", meta.ID)
	e.Body.TextMember("object", "response.compaction")
	e.Body.IntMember("created_at", meta.Created)
	e.Body.BeginListMember("output")
	for _, m := range said {
		beginItem(e.Body, typeMessage, newID("msg_"))
		e.Body.TextMember("status", statusCompleted)
		e.Body.TextMember("role", "user")
		e.Body.Key("content")
		e.parts(chat.Parts(m.GetContent()), false)
		e.Body.EndObject()
	}
	for _, part := range chat.FirstMessage(output).GetContent().GetList().GetParts() {
		e.Body.Raw(kept.JSON(part))
	}
	e.Body.EndList()
	e.Body.Key("usage")
	writeUsage(e.Body, output.GetUsage())
	e.Body.EndObject()
	return e.Written()
}
