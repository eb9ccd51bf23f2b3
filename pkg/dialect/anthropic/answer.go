package anthropic

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// newID makes an id in the form of the vendor's.
func newID(prefix string) string { return prefix + chat.NewID() }

// AppendResponse implements dialect.Codec. Of several choices the first counts: the format knows but one.
func (Codec) AppendResponse(dst []byte, output *modelv1.ModelOutput, meta dialect.ResponseMeta) ([]byte, error) {
	message := chat.FirstMessage(output)
	if message == nil {
		return nil, dialect.ErrNoChoices
	}
	blocks := answerBlocks(message)
	e := newEncoder(jsonwrite.Append(dst, dialect.OutputSize(output)))
	e.head(cmp.Or(meta.ID, output.GetResponseId()), cmp.Or(meta.Model, output.GetModel()))
	e.blocks(blocks)
	e.stop(output.GetChoices()[0])
	e.usage(output.GetUsage())
	e.Body.EndObject()
	return e.Body.Bytes(), nil
}

// noRequest is the request of an encoder for other bodies than requests.
var noRequest Request

// newEncoder returns an encoder for other bodies than requests.
func newEncoder(w *jsonwrite.Writer) *encoder {
	return &encoder{Request: &noRequest, Encoder: dialect.Encoder{MemberWriter: dialect.MemberWriter{Body: w}}}
}

// head opens a message and writes it up to its content, the blocks.
func (e *encoder) head(id, model string) {
	e.Body.BeginObject()
	e.Body.TextMember("id", cmp.Or(id, newID(idPrefix)))
	e.Body.TextMember("type", "message")
	e.Body.TextMember("role", roleAssistant)
	e.Body.TextMember("model", model)
	e.Body.Key("content")
}

// answerBlocks are the blocks of a model's answer. Empty texts are omitted, and media has no place in an answer.
func answerBlocks(m *modelv1.ChatMessage) []block {
	blocks := []block{}
	for _, part := range answerParts(m) {
		blocks = append(blocks, partBlock(part)...)
	}
	for _, call := range m.GetToolCalls() {
		blocks = append(blocks, block{call: withID(call)})
	}
	return blocks
}

// answerParts are the parts of an answer that have a place in the format, in the form for its clients.
func answerParts(m *modelv1.ChatMessage) (parts []*contentv1.Content) {
	for _, part := range chat.Parts(m.GetContent()) {
		if part = asAnswer(part); part != nil {
			parts = append(parts, part)
		}
	}
	return parts
}

// asAnswer converts a part to the form for a client of this format: open reasoning becomes thinking sealed by whatever
// signature it has, sealed reasoning stays as it is, whichever vendor signed it, and a text keeps only its text and
// citations. It is nil for a part without a place in the format.
func asAnswer(part *contentv1.Content) *contentv1.Content {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		if p.Text.GetText() == "" {
			return nil
		}
		text := chat.TextPart(p.Text.GetText())
		text.GetText().Citations = citation.ForAnthropic(p.Text.GetCitations())
		return text
	case *contentv1.Content_Reasoning:
		if r := p.Reasoning; !r.GetRedacted() {
			return chat.SealedPart(r.GetSignature(), &r.Reasoning)
		}
		return chat.SealedPart(p.Reasoning.GetReasoning(), p.Reasoning.Summary)
	}
	if use := part.GetToolUse(); use != nil {
		if use = hosted.ForAnthropic(use); use != nil {
			return chat.ToolUsePart(use)
		}
		return nil
	}
	if Kept.JSON(part) == "" {
		return nil
	}
	return part
}

// withID returns a call that has an id.
func withID(call *toolv1.ToolCall) *toolv1.ToolCall {
	if call.GetId() != "" {
		return call
	}
	return chat.Call(newID("toolu_"), call.GetFunction(), call.GetArgumentsJson())
}

// stopWords are the format's stop reasons. Any other reason ends the turn for the client.
var stopWords = map[modelv1.StopReason]string{
	modelv1.StopReason_STOP_REASON_MAX_TOKENS:     "max_tokens",
	modelv1.StopReason_STOP_REASON_MODEL_LENGTH:   "max_tokens",
	modelv1.StopReason_STOP_REASON_TOOL_CALLS:     "tool_use",
	modelv1.StopReason_STOP_REASON_CONTENT_FILTER: "refusal",
}

// stop writes the stop reason. A model that calls tools stopped for them, and one that says no has refused, even if its
// provider reports a plain end.
func (e *encoder) stop(choice *modelv1.Choice) {
	word := cmp.Or(stopWords[choice.GetStopReason()], "end_turn")
	switch {
	case word != "end_turn":
	case len(choice.GetMessage().GetToolCalls()) > 0:
		word = "tool_use"
	case chat.Refuses(choice.GetMessage()):
		word = "refusal"
	}
	e.Body.TextMember("stop_reason", word)
	e.Body.RawMember("stop_sequence", "null")
	if d := choice.GetStopDetails(); d != nil && word == "refusal" {
		e.Body.BeginObjectMember("stop_details")
		e.Body.TextMember("type", cmp.Or(d.GetType(), "refusal"))
		e.Body.TextOrNull("category", d.GetCategory())
		e.Body.TextOrNull("explanation", d.GetExplanation())
		e.Body.EndObject()
	}
}

func (e *encoder) usage(u *modelv1.ModelUsage) {
	e.Body.BeginObjectMember("usage")
	e.Body.IntMember("input_tokens", u.GetInputTokens())
	e.Body.IntMember("cache_creation_input_tokens", u.GetInputTokensCacheWrite())
	e.Body.IntMember("cache_read_input_tokens", u.GetInputTokensCacheRead())
	e.Body.IntMember("output_tokens", u.GetOutputTokens())
	if u != nil && u.ReasoningTokens != nil {
		e.Body.BeginObjectMember("output_tokens_details")
		e.Body.IntMember("thinking_tokens", u.GetReasoningTokens())
		e.Body.EndObject()
	}
	e.Body.EndObject()
}
