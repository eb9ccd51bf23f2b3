package gemini

import (
	"bytes"
	"encoding/base64"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonedit"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// skipped is the signature that the server takes for a call which its model did not make:
// https://ai.google.dev/gemini-api/docs/thought-signatures.
const skipped = "skip_thought_signature_validator"

// SignCalls returns a message whose first call has a signature, as the server demands of the calls of a turn: the
// message itself if it has calls with one, or none. The message is not modified.
func SignCalls(m *modelv1.ChatMessage) *modelv1.ChatMessage {
	if len(m.GetToolCalls()) == 0 {
		return m
	}
	for _, part := range m.GetContent().GetList().GetParts() {
		if r := part.GetReasoning(); r.GetRedacted() && r.GetReasoning() != "" {
			return m // It is on a call, or on what is before one.
		}
	}
	signed := proto.CloneOf(m)
	first := m.GetToolCalls()[0].GetId()
	parts := dialect.AnswerParts(signed)
	for _, part := range parts {
		if id, ok := anchored(part); ok && id == first {
			part.GetReasoning().Reasoning = skipped
			return signed
		}
	}
	signed.Content = chat.ListContent(append(parts, anchor(first, skipped))...)
	return signed
}

// Reopen implements dialect.Reopener: envelopes are signatures of parts. The thought that one seals is beside it, and
// stays.
func (Codec) Reopen(request []byte, take func(*contentv1.Content) *contentv1.Content, signCalls bool) []byte {
	if !dialect.HasEnvelope(request) {
		return request
	}
	part := func(part []byte) []byte { return reopened(part, take, signCalls) }
	contents := func(request []byte) []byte {
		return dialect.EditTurns(request, "contents", "parts", `[{"text":""}]`, part)
	}
	request = contents(request)
	for _, whole := range []string{"generateContentRequest", "generate_content_request"} {
		request = jsonedit.Member(request, whole, contents)
	}
	return request
}

// reopened returns a part with what the server gets in place of an envelope; nil for a part that has nothing else.
func reopened(raw []byte, take func(*contentv1.Content) *contentv1.Content, signCalls bool) []byte {
	var p part
	if !dialect.HasEnvelope(raw) || jsonread.Unmarshal(camel(raw), &p) != nil {
		return raw
	}
	sealed, err := base64.StdEncoding.DecodeString(dialect.StandardBase64(p.Signature))
	if err != nil {
		return raw
	}
	whole := dialect.Enveloped(string(sealed), nil)
	if whole == nil {
		return raw
	}
	signature := ""
	if own := take(whole); own.GetReasoning().GetRedacted() {
		signature = own.GetReasoning().GetReasoning()
	}
	switch {
	case signature != "":
	case p.Call != nil && signCalls:
		signature = skipped
	case p.Text != nil && *p.Text == "":
		return nil
	}
	for _, member := range []string{"thoughtSignature", "thought_signature"} {
		if signature == "" {
			raw = jsonedit.Without(raw, member)
		} else {
			raw = jsonedit.Member(raw, member, func([]byte) []byte { return jsonwrite.AppendText(nil, signature) })
		}
	}
	if len(bytes.Trim(raw, "{} \t\r\n")) == 0 { // Some clients leave an empty text out.
		return nil
	}
	return raw
}
