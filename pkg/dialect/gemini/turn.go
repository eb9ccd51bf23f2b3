package gemini

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// turnWriter writes the parts of a model's message: in a request, as the API takes them back, and in an answer.
type turnWriter struct {
	w *jsonwrite.Writer
	// calls are those of the message.
	calls []*toolv1.ToolCall
	// answer means that the parts are an answer, of which thoughts that are known beside their seal are a part.
	answer bool
	// thinkTags writes reasoning as a text between think tags, without what it says of calls.
	thinkTags bool
	// missing is what a stream has not written yet; nil is everything.
	missing *missing
	// seal is the sealed part whose signature is on the next part; nil if there is none.
	seal *contentv1.Content
	// foreign means that the message has calls, and that none has an anchor: no Gemini server has answered it.
	foreign bool
	// left are the calls that are not written yet, by id.
	left map[string][]*toolv1.ToolCall
	// count is how many parts are written, and texts are the places of the texts among them.
	count int
	texts []int
}

// missing is what a stream has not written yet of the texts and the thoughts of a choice.
type missing struct {
	text, thought dialect.Remainder
	// seals is how many of the sealed parts it has written.
	seals int
}

// write writes the parts, and then the calls that have no place among them.
func (t *turnWriter) write(parts []*contentv1.Content) {
	t.left = map[string][]*toolv1.ToolCall{}
	for _, call := range t.calls {
		t.left[call.GetId()] = append(t.left[call.GetId()], call)
	}
	t.foreign = len(t.calls) > 0 && !slices.ContainsFunc(parts, isAnchor)
	for _, part := range parts {
		t.part(part)
	}
	for _, call := range t.calls {
		if left := t.left[call.GetId()]; len(left) > 0 && left[0] == call {
			t.call(call)
		}
	}
	t.flush()
}

func (t *turnWriter) part(part *contentv1.Content) {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		t.text(p.Text.GetText())
	case *contentv1.Content_Reasoning:
		t.reasoning(part)
	case *contentv1.Content_ToolUse:
		if p.ToolUse.GetToolType() == contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION {
			t.execution(p.ToolUse, part.GetInternalJson() != noResult)
		} // The server keeps no place for its searches.
	default:
		if mediaType, data, inline := dialect.SplitDataURI(chat.Media(part).GetUri()); inline {
			t.w.BeginObject()
			writeInline(t.w, t.typeMember(), mediaType, data)
			t.end()
		}
	}
}

func (t *turnWriter) text(text string) {
	rest := text
	if t.missing != nil {
		rest, _ = t.missing.text.Of(text)
	}
	t.texts = append(t.texts, t.count)
	if rest == "" && text != "" && t.seal == nil {
		return
	}
	t.w.BeginObject()
	t.w.TextMember("text", rest)
	t.end()
}

func (t *turnWriter) thought(text string) {
	if t.missing != nil {
		text, _ = t.missing.thought.Of(text)
	}
	if text == "" {
		return
	}
	t.w.BeginObject()
	t.w.TextMember("text", text)
	t.w.BoolMember("thought", true)
	t.w.EndObject()
	t.count++
}

func (t *turnWriter) reasoning(part *contentv1.Content) {
	r := part.GetReasoning()
	if t.thinkTags {
		if !isAnchor(part) {
			t.text(dialect.Think(part))
		}
		return
	}
	if id, ok := anchored(part); ok {
		if left := t.left[id]; len(left) > 0 {
			t.flush()
			t.seal = part
			t.call(left[0])
		} // Otherwise the call was removed, and its signature is of no use.
		return
	}
	switch {
	case !r.GetRedacted() && !t.answer:
		t.thought(r.GetReasoning())
		return
	case !isSealed(part):
		t.thought(dialect.Readable(part))
		return
	}
	t.flush()
	if t.answer {
		t.thought(dialect.Readable(part))
	}
	if t.missing != nil && t.missing.seals > 0 {
		t.missing.seals--
		return
	}
	t.seal = part
}

// call writes the first call that is left with its id.
func (t *turnWriter) call(call *toolv1.ToolCall) {
	t.left[call.GetId()] = t.left[call.GetId()][1:]
	t.w.BeginObject()
	t.w.BeginObjectMember("functionCall")
	t.w.TextUnlessEmpty("id", call.GetId())
	t.w.TextMember("name", call.GetFunction())
	t.w.RawMember("args", dialect.ArgumentsOf(call))
	t.w.EndObject()
	t.end()
}

// flush writes a signature that has no part to be on as a part of its own, as the server does at the end of a stream.
func (t *turnWriter) flush() {
	if t.seal != nil {
		t.w.BeginObject()
		t.w.TextMember("text", "")
		t.end()
	}
}

// end ends a part, with the signature.
func (t *turnWriter) end() {
	if t.seal != nil {
		signature := t.seal.GetReasoning().GetReasoning()
		if t.answer && !emptyAnchor(t.seal) {
			signature = wrapped(t.seal, !isAnchor(t.seal) && (t.foreign || isForeign(t.seal)))
		}
		t.w.TextUnlessEmpty("thoughtSignature", signature)
		t.seal = nil
	}
	t.w.EndObject()
	t.count++
}

// typeMember is the name of a media type, which requests spell otherwise than answers.
func (t *turnWriter) typeMember() string {
	if t.answer {
		return "mimeType"
	}
	return "mime_type"
}

// writeInline writes the member that holds media.
func writeInline(w *jsonwrite.Writer, typeMember, mediaType, data string) {
	w.TextObjectMember("inlineData", typeMember, mediaType, "data", data)
}

const (
	outcomeOK     = "OUTCOME_OK"
	outcomeFailed = "OUTCOME_FAILED"

	languagePython = "PYTHON"
)

// execution writes code that the server ran, and what came of it.
func (t *turnWriter) execution(use *contentv1.ToolUse, hasResult bool) {
	t.w.BeginObject()
	t.w.TextObjectMember("executableCode", "language", languagePython, "code", hosted.Code(use))
	t.end()
	if !hasResult {
		return
	}
	outcome := outcomeOK
	if use.Error != nil {
		outcome = outcomeFailed
	}
	t.w.BeginObject()
	t.w.TextObjectMember("codeExecutionResult", "outcome", outcome, "output", hosted.Output(use))
	t.w.EndObject()
	t.count++
}
