package anthropic

import (
	"regexp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// unsealed finds thinking with an empty signature, as AppendResponse writes open reasoning. The server makes none.
var unsealed = regexp.MustCompile(`"signature"\s*:\s*""`)

// Reopen implements dialect.Reopener: envelopes are signatures and data of thinking, and an empty signature is open
// reasoning. What another vendor's search found and cited is left out. A turn of which nothing is left says so, since
// the server refuses an empty one.
func (Codec) Reopen(request []byte, take func(*contentv1.Content) *contentv1.Content, _ bool) []byte {
	if !mayReopen(request) {
		return request
	}
	block := func(raw []byte) []byte {
		var b wireBlock
		if !mayReopen(raw) || jsonread.Unmarshal(raw, &b) != nil {
			return raw
		}
		switch b.Type {
		case "thinking", "redacted_thinking":
		case "text":
			return citation.Reopen(raw)
		default:
			return hosted.ReopenAnthropic(raw)
		}
		part := b.enveloped()
		if part == nil {
			return raw
		}
		if part = take(part); part == nil || !isThinking(part.GetReasoning()) && part.GetReasoning().GetReasoning() == "" {
			return nil
		}
		e := newEncoder(jsonwrite.NewWriter(len(raw)))
		e.Body.BeginObject()
		e.reasoning(part.GetReasoning())
		e.Body.EndObject()
		return e.Body.Bytes()
	}
	return dialect.EditTurns(request, "messages", "content", `[{"type":"text","text":"`+noContent+`"}]`, block)
}

// mayReopen reports whether a document may have something to reopen in it. It is much faster than to decode it.
func mayReopen(doc []byte) bool { return dialect.HasEnvelope(doc) || unsealed.Match(doc) }

// enveloped is the reasoning in the envelope that thinking has, or the open reasoning that it is; nil for the server's
// own.
func (b *wireBlock) enveloped() *contentv1.Content {
	switch {
	case b.Type == "redacted_thinking":
		return dialect.Enveloped(b.Data, nil)
	case b.Signature == "":
		return chat.ReasoningPart(b.Thinking)
	default:
		return dialect.Enveloped(b.Signature, &b.Thinking)
	}
}
