package mistralconversations

import (
	"cmp"
	"time"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// AppendResponse implements dialect.Codec. Of several choices the first is the answer.
func (Codec) AppendResponse(dst []byte, output *modelv1.ModelOutput, meta dialect.ResponseMeta) ([]byte, error) {
	if len(output.GetChoices()) == 0 {
		return nil, dialect.ErrNoChoices
	}
	meta.ID, meta.Model = cmp.Or(meta.ID, output.GetResponseId(), newID(idPrefix)), cmp.Or(meta.Model, output.GetModel())
	a := &answer{Writer: jsonwrite.Append(dst, dialect.OutputSize(output)), meta: meta}
	a.BeginObject()
	a.TextMember("conversation_id", meta.ID)
	a.TextMember("object", "conversation.response")
	a.BeginListMember("outputs")
	a.message(output.GetChoices()[0].GetMessage())
	a.EndList()
	a.Key("usage")
	mistral.WriteUsage(a.Writer, output.GetUsage())
	a.EndObject()
	return a.Bytes(), nil
}

// answer writes an answer.
type answer struct {
	*jsonwrite.Writer
	meta dialect.ResponseMeta
}

// message writes a message as entries: one for neighbouring parts, for what a tool of the server did, and for each
// call.
func (a *answer) message(m *modelv1.ChatMessage) {
	var said []*contentv1.Content
	flush := func() {
		if len(said) > 0 {
			a.output(said)
			said = nil
		}
	}
	for _, part := range dialect.AnswerParts(m) {
		if use := part.GetToolUse(); use != nil {
			flush()
			a.begin(typeExecution, cmp.Or(use.GetId(), newID(toolID)))
			a.TextMember("name", nameOf(use))
			a.TextMember("arguments", use.GetArguments())
			writeInfo(a.Writer, use)
			a.EndObject()
			continue
		}
		said = append(said, part)
	}
	flush()
	for _, call := range m.GetToolCalls() {
		a.begin(typeCall, newID(callID))
		a.TextMember("tool_call_id", call.GetId())
		a.TextMember("name", call.GetFunction())
		a.TextMember("arguments", dialect.ArgumentsOf(call))
		a.EndObject()
	}
}

// begin opens an entry of the answer.
func (a *answer) begin(kind, id string) {
	begin(a.Writer, kind)
	a.TextMember("id", id)
	a.TextMember("model", a.meta.Model)
	if a.meta.Created != 0 {
		a.TextMember("created_at", time.Unix(a.meta.Created, 0).UTC().Format(time.RFC3339))
	}
}

// output writes a message: a plain text as such.
func (a *answer) output(parts []*contentv1.Content) {
	a.begin(typeOutput, newID(messageID))
	a.TextMember("role", "assistant")
	a.Key("content")
	if text := parts[0].GetText(); len(parts) == 1 && text != nil && len(text.GetCitations()) == 0 {
		a.Text(text.GetText())
	} else {
		for _, part := range jsonwrite.List(a.Writer, parts) {
			mistral.WriteAnswer(a.Writer, part)
			mistral.WriteReferences(a.Writer, part.GetText().GetCitations())
		}
	}
	a.EndObject()
}
