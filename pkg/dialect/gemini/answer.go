package gemini

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// AppendResponse implements dialect.Codec.
func (Codec) AppendResponse(dst []byte, output *modelv1.ModelOutput, meta dialect.ResponseMeta) ([]byte, error) {
	if len(output.GetChoices()) == 0 {
		return nil, dialect.ErrNoChoices
	}
	w := jsonwrite.Append(dst, 512)
	w.BeginObject()
	w.Key("candidates")
	for i, c := range jsonwrite.Objects(w, output.GetChoices()) {
		writeCandidate(w, i, c, nil)
	}
	writeUsage(w, output.GetUsage())
	meta.ID = cmp.Or(meta.ID, output.GetResponseId(), chat.NewID())
	meta.Model = cmp.Or(meta.Model, output.GetModel())
	writeMeta(w, &meta)
	w.EndObject()
	return w.Bytes(), nil
}

// writeMeta writes the members that an answer and all its pieces have.
func writeMeta(w *jsonwrite.Writer, meta *dialect.ResponseMeta) {
	w.TextMember("modelVersion", meta.Model)
	w.TextMember("responseId", meta.ID)
}

// writeContent writes the content of a candidate.
func writeContent(w *jsonwrite.Writer, parts func()) {
	w.BeginObjectMember("content")
	w.BeginListMember("parts")
	parts()
	w.EndList()
	w.TextMember("role", roleModel)
	w.EndObject()
}

// writeCandidate writes the members of a choice, or what is missing of it, unless missing is nil.
func writeCandidate(w *jsonwrite.Writer, index int, c *modelv1.Choice, missing *missing) {
	t := &turnWriter{w: w, calls: c.GetMessage().GetToolCalls(), answer: true, missing: missing}
	parts := dialect.AnswerParts(c.GetMessage())
	writeContent(w, func() { t.write(parts) })
	w.TextMember("finishReason", cmp.Or(finishReasons[c.GetStopReason()], "OTHER"))
	w.IntMember("index", int64(index))
	t.ground(parts)
	if c.GetLogprobs() != nil {
		writeLogprobs(w, c.GetLogprobs().GetContent())
	}
}

// ground writes what the parts say of searches and sources. In a stream the places of texts are not said: there each
// piece is a part.
func (t *turnWriter) ground(parts []*contentv1.Content) {
	var queries []string
	var found []citation.Source
	var texts []*contentv1.Text
	for _, part := range parts {
		if text := part.GetText(); text != nil {
			texts = append(texts, text)
		}
		if use := part.GetToolUse(); use.GetToolType() == contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH {
			queries, found = append(queries, hosted.Query(use)), append(found, hosted.Sources(use)...)
		}
	}
	if t.missing != nil {
		t.texts = make([]int, len(texts))
	}
	citation.WriteGrounding(t.w, queries, found, texts, t.texts)
}

// finishReasons are the words for stop reasons.
var finishReasons = map[modelv1.StopReason]string{
	modelv1.StopReason_STOP_REASON_STOP: finishStop, modelv1.StopReason_STOP_REASON_TOOL_CALLS: finishStop,
	modelv1.StopReason_STOP_REASON_MAX_TOKENS: finishMaxTokens, modelv1.StopReason_STOP_REASON_MODEL_LENGTH: finishMaxTokens, filtered: finishSafety,
}

// writeUsage writes the usage, if there is any. The format counts what is written to a cache as any other input.
func writeUsage(w *jsonwrite.Writer, u *modelv1.ModelUsage) {
	if u == nil {
		return
	}
	input := chat.InputTokens(u)
	w.BeginObjectMember("usageMetadata")
	w.IntMember("promptTokenCount", input)
	jsonwrite.OptInt(w, "cachedContentTokenCount", u.InputTokensCacheRead)
	w.IntMember("candidatesTokenCount", max(0, u.GetOutputTokens()-u.GetReasoningTokens()))
	jsonwrite.OptInt(w, "thoughtsTokenCount", u.ReasoningTokens)
	w.IntMember("totalTokenCount", max(u.GetTotalTokens(), input+u.GetOutputTokens()))
	w.EndObject()
}

func writeLogprobs(w *jsonwrite.Writer, tokens []*modelv1.Logprob) {
	w.BeginObjectMember("logprobsResult")
	w.Key("chosenCandidates")
	for _, p := range jsonwrite.Objects(w, tokens) {
		writeLogprob(w, p.GetToken(), p.GetLogprob())
	}
	w.Key("topCandidates")
	for _, p := range jsonwrite.Objects(w, tokens) {
		w.Key("candidates")
		for _, top := range jsonwrite.Objects(w, p.GetTopLogprobs()) {
			writeLogprob(w, top.GetToken(), top.GetLogprob())
		}
	}
	w.EndObject()
}

func writeLogprob(w *jsonwrite.Writer, token string, logprob float64) {
	w.TextMember("token", token)
	w.Key("logProbability")
	w.Float(logprob)
}
