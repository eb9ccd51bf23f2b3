package openairesponses

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonedit"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// Reopen implements dialect.Reopener: envelopes are the sealed content of reasoning. Open reasoning is left out, since
// the server does not take it, and code that another vendor ran becomes a message. Those in place of a conversation
// become the message with its summary; one that has none is left for the server to refuse.
func (Codec) Reopen(request []byte, take func(*contentv1.Content) *contentv1.Content, _ bool) []byte {
	if !dialect.HasEnvelope(request) {
		return request
	}
	input := func(raw []byte) []byte {
		var it struct {
			Type string `json:"type"`
			Seal string `json:"encrypted_content"`
		}
		if !dialect.HasEnvelope(raw) || jsonread.Unmarshal(raw, &it) != nil {
			return raw
		}
		e := (&Request{}).encoder(nil)
		if m, _ := dialect.UnsealSummary("", it.Seal); m != nil && it.Type == typeCompacted {
			e.prompt("user", chat.Parts(m.GetContent()), false)
			return e.Body.Bytes()
		}
		if it.Type != typeReasoning {
			return hosted.ReopenOpenAI(raw)
		}
		part := dialect.Enveloped(it.Seal, nil)
		if part == nil {
			return raw
		}
		if part = take(part); !part.GetReasoning().GetRedacted() {
			return nil
		}
		e.reasoning(part.GetReasoning())
		return e.Body.Bytes()
	}
	return jsonedit.Member(request, "input", func(list []byte) []byte { return jsonedit.List(list, input) })
}
