package bedrockconverse

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// metrics are those of an answer, whose time is not known here.
const metrics = `{"latencyMs":0}`

// AppendResponse implements dialect.Codec. The format has no place for the id and the model of an answer.
func (Codec) AppendResponse(dst []byte, output *modelv1.ModelOutput, _ dialect.ResponseMeta) ([]byte, error) {
	if len(output.GetChoices()) == 0 {
		return nil, dialect.ErrNoChoices
	}
	choice := output.GetChoices()[0]
	w := jsonwrite.Append(dst, dialect.OutputSize(output))
	w.BeginObject()
	w.BeginObjectMember("output")
	w.BeginObjectMember("message")
	w.TextMember("role", roleAssistant)
	w.BeginListMember("content")
	for _, part := range dialect.AnswerParts(choice.GetMessage()) {
		writeAnswerPart(w, part)
	}
	for _, call := range choice.GetMessage().GetToolCalls() {
		writeCall(w, call.GetId(), call)
	}
	w.EndList()
	w.EndObject()
	w.EndObject()
	w.TextMember("stopReason", stopWord(choice.GetStopReason()))
	writeUsage(w, output.GetUsage())
	w.RawMember("metrics", metrics)
	w.EndObject()
	return w.Bytes(), nil
}

// writeAnswerPart writes a part of an answer, unless the format does not have it.
func writeAnswerPart(w *jsonwrite.Writer, part *contentv1.Content) {
	switch {
	case part.GetText() != nil:
		writeText(w, part.GetText().GetText())
	case part.GetImage() != nil:
		writeImage(w, part.GetImage())
	case part.GetReasoning() != nil:
		if text, signature, content := answered(part); content != "" {
			writeRedacted(w, content)
		} else {
			writeReasoning(w, text, signature)
		}
	}
}

// stopWords are the words for stop reasons.
var stopWords = map[modelv1.StopReason]string{
	modelv1.StopReason_STOP_REASON_STOP: stopEnd, modelv1.StopReason_STOP_REASON_TOOL_CALLS: stopTool, modelv1.StopReason_STOP_REASON_MAX_TOKENS: stopTokens,
	modelv1.StopReason_STOP_REASON_MODEL_LENGTH: stopFull, modelv1.StopReason_STOP_REASON_CONTENT_FILTER: stopFiltered,
}

func stopWord(reason modelv1.StopReason) string {
	if word, ok := stopWords[reason]; ok {
		return word
	}
	return stopMalformed
}

// writeUsage writes the usage, which clients require. The format does not count reasoning separately.
func writeUsage(w *jsonwrite.Writer, u *modelv1.ModelUsage) {
	if u == nil {
		u = &modelv1.ModelUsage{}
	}
	w.BeginObjectMember("usage")
	w.IntMember("inputTokens", u.GetInputTokens())
	w.IntMember("outputTokens", u.GetOutputTokens())
	w.IntMember("totalTokens", chat.SumTokens(chat.InputTokens(u), u.GetOutputTokens()))
	jsonwrite.OptInt(w, "cacheReadInputTokens", u.InputTokensCacheRead)
	jsonwrite.OptInt(w, "cacheWriteInputTokens", u.InputTokensCacheWrite)
	w.EndObject()
}
