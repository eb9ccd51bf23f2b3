package mistralchat

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// AppendResponse implements dialect.Codec.
func (Codec) AppendResponse(dst []byte, output *modelv1.ModelOutput, meta dialect.ResponseMeta) ([]byte, error) {
	if len(output.GetChoices()) == 0 {
		return nil, dialect.ErrNoChoices
	}
	w := jsonwrite.Append(dst, dialect.OutputSize(output))
	meta.ID = cmp.Or(meta.ID, output.GetResponseId(), newID())
	w.BeginObject()
	openai.WriteHead(w, &meta, output, "chat.completion")
	w.Key("choices")
	for i, c := range jsonwrite.Objects(w, output.GetChoices()) {
		w.IntMember("index", int64(i))
		w.Key("message")
		writeAnswer(w, c.GetMessage())
		w.TextMember("finish_reason", finishReason(c.GetStopReason()))
	}
	w.Key("usage")
	mistral.WriteUsage(w, output.GetUsage())
	w.EndObject()
	return w.Bytes(), nil
}

func writeAnswer(w *jsonwrite.Writer, m *modelv1.ChatMessage) {
	w.BeginObject()
	w.TextMember("role", "assistant")
	w.Key("content")
	if list := m.GetContent().GetList(); list == nil {
		w.Text(m.GetContent().GetText())
	} else {
		for _, part := range jsonwrite.List(w, list.GetParts()) {
			mistral.WriteAnswer(w, part)
		}
	}
	if calls := m.GetToolCalls(); len(calls) > 0 {
		w.Key("tool_calls")
		for i, call := range jsonwrite.List(w, calls) {
			writeCall(w, i, call.GetId(), call.GetFunction(), dialect.ArgumentsOf(call))
		}
	}
	w.EndObject()
}
