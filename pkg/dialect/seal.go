package dialect

import (
	"bytes"
	"encoding/base64"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonedit"
	"github.com/evalfleet/evalfleet/pkg/summary"
)

// Clients send the sealed form of reasoning back unchanged. Reasoning in another form than the client's vendor's is
// sealed whole, so that its own provider can accept it again: it is in an envelope, a text. So is a summary in place of
// a conversation, for all models alike.

const (
	// envelope begins every envelope. What follows is the content in base64, after the form if that is not the first.
	envelope = "evalfleet:"
	// form is the form of envelopes that are made now, whose content says who can read the seal.
	form = "2:"
)

// encodedEnvelope begins every envelope in base64.
var encodedEnvelope = []byte(base64.StdEncoding.EncodeToString([]byte(envelope[:9])))

const (
	// AnySealer is who can read a seal of which nothing is known: envelopes of the first form do not say it.
	AnySealer = "any"
	// NoSealer is who can read an envelope that is not understood here.
	NoSealer = "none"
)

// Seal returns reasoning, the use of a vendor's tool, or a text, as a text that is a seal to a client. Reasoning that
// is in an envelope already has that.
func Seal(part *contentv1.Content) string {
	if text := part.GetReasoning().GetReasoning(); Unseal(text) != nil {
		return text
	}
	message, err := proto.MarshalOptions{Deterministic: true}.Marshal(part)
	if err != nil {
		return "" // A text is not valid UTF-8; what is readable of it is beside the seal.
	}
	return envelope + form + base64.StdEncoding.EncodeToString(message)
}

// Unseal returns the reasoning that Seal has sealed; nil for any other text.
func Unseal(sealed string) *contentv1.Content {
	part, current := unseal(sealed)
	if part.GetReasoning() == nil {
		return nil
	}
	if !current {
		part.GetReasoning().SealedBy = AnySealer
	}
	return part
}

// UnsealUse returns the use of a vendor's tool that Seal has sealed; nil for any other text.
func UnsealUse(sealed string) *contentv1.ToolUse {
	part, _ := unseal(sealed)
	return part.GetToolUse()
}

// UnsealSummary returns the message with the summary that Seal has sealed as a text; nil for a seal of another. The
// error is a *RequestError about the member param: it is empty, or an envelope without a summary.
func UnsealSummary(param, sealed string) (*modelv1.ChatMessage, error) {
	part, _ := unseal(sealed)
	switch text := part.GetText().GetText(); {
	case sealed == "":
		return nil, Required(param)
	case text != "":
		m := summary.Message(text)
		m.Id = chat.NewID()
		return m, nil
	case strings.HasPrefix(sealed, envelope):
		return nil, Invalid(param, "is an envelope without a summary that is understood here")
	default:
		return nil, nil
	}
}

// unseal is the content of an envelope, which has the current form or not; nil for any other text.
func unseal(sealed string) (part *contentv1.Content, current bool) {
	encoded, own := strings.CutPrefix(sealed, envelope)
	if !own {
		return nil, false
	}
	encoded, current = strings.CutPrefix(encoded, form)
	message, err := base64.StdEncoding.DecodeString(encoded)
	part = &contentv1.Content{}
	if err != nil || proto.Unmarshal(message, part) != nil {
		return nil, false
	}
	return part, current
}

// Enveloped returns the reasoning whose seal is a text, if that is an envelope; else nil. Readable is what came beside
// the text. Of an envelope that is not understood, such as that of a later version, nothing else is known.
func Enveloped(text string, readable *string) *contentv1.Content {
	part := Unseal(text)
	if part == nil && strings.HasPrefix(text, envelope) {
		part = chat.SealedPart(text, readable)
		part.GetReasoning().SealedBy = NoSealer
	}
	return part
}

// HasEnvelope reports whether a document may have an envelope in it, as a text or as bytes in base64. It looks at each
// request that is passed on: a search that begins with a rare letter is several times faster than one with an `e`.
func HasEnvelope(doc []byte) bool {
	return bytes.Contains(doc, []byte(envelope[1:])) || bytes.Contains(doc, encodedEnvelope)
}

// EditTurns edits the parts of a conversation in a document: the elements of the member named parts of each element of
// the member named turns. An edit that returns nil leaves its part out. A turn that has no part left gets filler, a
// list, since servers refuse an empty turn.
func EditTurns(doc []byte, turns, parts, filler string, edit jsonedit.Edit) []byte {
	left := func(list []byte) []byte {
		if edited := jsonedit.List(list, edit); string(edited) != "[]" || string(list) == "[]" {
			return edited
		}
		return []byte(filler)
	}
	turn := func(turn []byte) []byte { return jsonedit.Member(turn, parts, left) }
	return jsonedit.Member(doc, turns, func(list []byte) []byte { return jsonedit.List(list, turn) })
}

// Readable is the text of reasoning that a person can read.
func Readable(part *contentv1.Content) string {
	r := part.GetReasoning()
	if r.Summary != nil || r.GetRedacted() {
		return r.GetSummary()
	}
	return r.GetReasoning()
}
