package mistralchat

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// AppendResponse implements dialect.Codec.
func (Codec) AppendResponse(dst []byte, output *modelv1.ModelOutput, meta dialect.ResponseMeta) ([]byte, error) {
	if len(output.GetChoices()) == 0 {
		return nil, dialect.ErrNoChoices
	}
	w := jsonwrite.Append(dst, 512+dialect.OutputSize(output))
	meta.ID = cmp.Or(meta.ID, output.GetResponseId(), newID())
	begin(w, &meta, output, "chat.completion")
	w.BeginListMember("choices")
	for i, c := range output.GetChoices() {
		w.BeginObject()
		w.IntMember("index", int64(i))
		w.Key("message")
		writeAnswer(w, c.GetMessage())
		w.TextMember("finish_reason", finishReason(c.GetStopReason()))
		w.EndObject()
	}
	w.EndList()
	w.Key("usage")
	mistral.WriteUsage(w, output.GetUsage())
	w.EndObject()
	return w.Bytes(), nil
}

// begin opens an answer or a chunk.
func begin(w *jsonwrite.Writer, m *dialect.ResponseMeta, output *modelv1.ModelOutput, object string) {
	w.BeginObject()
	w.TextMember("id", m.ID)
	w.TextMember("object", object)
	w.IntMember("created", m.Created)
	w.TextMember("model", cmp.Or(m.Model, output.GetModel()))
}

func writeAnswer(w *jsonwrite.Writer, m *modelv1.ChatMessage) {
	w.BeginObject()
	w.TextMember("role", "assistant")
	w.Key("content")
	if list := m.GetContent().GetList(); list == nil {
		w.Text(m.GetContent().GetText())
	} else {
		w.BeginList()
		for _, part := range list.GetParts() {
			mistral.WriteAnswer(w, part)
		}
		w.EndList()
	}
	if calls := m.GetToolCalls(); len(calls) > 0 {
		w.BeginListMember("tool_calls")
		for i, call := range calls {
			writeCall(w, i, call.GetId(), call.GetFunction(), dialect.ArgumentsOf(call))
		}
		w.EndList()
	}
	w.EndObject()
}
