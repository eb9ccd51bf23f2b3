package openaichat

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// AppendResponse implements dialect.Codec.
func (Codec) AppendResponse(dst []byte, output *modelv1.ModelOutput, meta dialect.ResponseMeta) ([]byte, error) {
	if len(output.GetChoices()) == 0 {
		return nil, dialect.ErrNoChoices
	}
	w := jsonwrite.Append(dst, dialect.OutputSize(output))
	meta.ID = cmp.Or(meta.ID, output.GetResponseId(), newID())
	form := formOf(&meta)
	w.BeginObject()
	openai.WriteHead(w, &meta, output, "chat.completion")
	w.Key("choices")
	for i, c := range jsonwrite.Objects(w, output.GetChoices()) {
		w.IntMember("index", int64(i))
		w.Key("message")
		writeAnswer(w, c.GetMessage(), form)
		writeLogprobs(w, c.GetLogprobs())
		w.TextMember("finish_reason", finishReason(c.GetStopReason(), form))
	}
	if usage := output.GetUsage(); usage != nil {
		w.Key("usage")
		writeUsage(w, usage)
	}
	w.EndObject()
	return w.Bytes(), nil
}

// newID makes an id in the form of the vendor's.
func newID() string { return idPrefix + chat.NewID() }

// said is the content of a message, by the format's places for it.
type said struct {
	text, refusal, reasoning string
	parts                    []*contentv1.Content
	calls                    []*toolv1.ToolCall
	// sources are those of the text.
	sources []citation.Annotation
}

// saidBy is a message whose texts have something between them: a line break, or nothing in a stream.
func saidBy(m *modelv1.ChatMessage, between string) said {
	s := said{parts: chat.Parts(m.GetContent()), calls: m.GetToolCalls()}
	var texts, refusals, reasoning []string
	before := int64(0) // how many characters the texts before have
	for _, part := range s.parts {
		switch p := part.GetPart().(type) {
		case *contentv1.Content_Text:
			if p.Text.GetRefusal() {
				refusals = append(refusals, p.Text.GetText())
			} else if p.Text.GetText() != "" {
				s.sources = append(s.sources, citation.OpenAIOf(p.Text, before+int64(len(texts)*len(between)))...)
				before += int64(utf8.RuneCountInString(p.Text.GetText()))
				texts = append(texts, p.Text.GetText())
			}
		case *contentv1.Content_Reasoning:
			if open := openReasoning(p.Reasoning); open != "" {
				reasoning = append(reasoning, open)
			}
		}
	}
	s.text, s.refusal, s.reasoning = strings.Join(texts, between), strings.Join(refusals, "\n"), strings.Join(reasoning, "\n")
	return s
}

// openReasoning is the readable text of reasoning.
func openReasoning(r *contentv1.Reasoning) string {
	if r.GetRedacted() {
		return r.GetSummary()
	}
	return r.GetReasoning()
}

func writeAnswer(w *jsonwrite.Writer, m *modelv1.ChatMessage, form callForm) {
	s := saidBy(m, "\n")
	w.BeginObject()
	w.TextMember("role", "assistant")
	w.Key("content")
	if s.text == "" && (s.refusal != "" || len(s.calls) > 0) {
		w.Null()
	} else {
		w.Text(s.text)
	}
	w.TextOrNull("refusal", s.refusal)
	w.TextUnlessEmpty(memberReasoningContent, s.reasoning)
	writeDetails(w, s.parts)
	writeImages(w, s.parts)
	writeSources(w, s.sources)
	if len(s.calls) > 0 {
		form.write(w, s.calls)
	}
	w.EndObject()
}

// writeSources writes the sources of a text, if it has any.
func writeSources(w *jsonwrite.Writer, sources []citation.Annotation) {
	if len(sources) == 0 {
		return
	}
	w.BeginListMember("annotations")
	for i := range sources {
		sources[i].WriteChat(w)
	}
	w.EndList()
}

// finishReason is the word for a stop reason.
func finishReason(reason modelv1.StopReason, form callForm) string {
	switch reason {
	case modelv1.StopReason_STOP_REASON_TOOL_CALLS:
		return form.finish()
	case modelv1.StopReason_STOP_REASON_CONTENT_FILTER:
		return finishFiltered
	case modelv1.StopReason_STOP_REASON_MAX_TOKENS, modelv1.StopReason_STOP_REASON_MODEL_LENGTH:
		return "length"
	default:
		return "stop"
	}
}

func writeUsage(w *jsonwrite.Writer, u *modelv1.ModelUsage) {
	input := chat.InputTokens(u)
	w.BeginObject()
	w.IntMember("prompt_tokens", input)
	w.IntMember("completion_tokens", u.GetOutputTokens())
	w.IntMember("total_tokens", max(u.GetTotalTokens(), input+u.GetOutputTokens()))
	if u.InputTokensCacheRead != nil || u.InputTokensCacheWrite != nil {
		w.BeginObjectMember("prompt_tokens_details")
		w.IntMember("cached_tokens", u.GetInputTokensCacheRead())
		jsonwrite.OptInt(w, "cache_write_tokens", u.InputTokensCacheWrite)
		w.EndObject()
	}
	if u.ReasoningTokens != nil {
		w.BeginObjectMember("completion_tokens_details")
		w.IntMember("reasoning_tokens", u.GetReasoningTokens())
		w.EndObject()
	}
	w.EndObject()
}

func writeLogprobs(w *jsonwrite.Writer, l *modelv1.Logprobs) {
	w.Key("logprobs")
	if l == nil {
		w.Null()
		return
	}
	w.BeginObject()
	w.Key("content")
	openai.WriteLogprobs(w, l.GetContent())
	w.Key("refusal")
	w.Null()
	w.EndObject()
}
