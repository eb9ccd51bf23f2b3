package openaichat

import (
	"encoding/json"
	"strings"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// The format has no place for reasoning. `reasoning_content`, which many servers and clients know, holds its readable
// text; `reasoning_details`, which clients that send messages back unchanged return, holds what a provider needs to
// accept it again.

// ownFormat marks details that AppendResponse wrote.
const ownFormat = "evalfleet"

// Types of details.
const (
	detailText   = "reasoning.text"
	detailSealed = "reasoning.encrypted"
)

// detail is one of the details that AppendResponse writes.
type detail struct {
	Type      string  `json:"type"`
	Text      string  `json:"text"`
	Data      string  `json:"data"`
	Summary   *string `json:"summary"`
	Signature *string `json:"signature"`
	// Internal is JSON as a text, so that no client writes it otherwise.
	Internal string `json:"internal"`
	Format   string `json:"format"`
}

// ownDetails reads details that AppendResponse wrote; none when there are others among them.
func ownDetails(list []json.RawMessage) []*contentv1.Content {
	var parts []*contentv1.Content
	for _, raw := range list {
		var d detail
		if json.Unmarshal(raw, &d) != nil || d.Format != ownFormat {
			return nil
		}
		r := &contentv1.Reasoning{Reasoning: d.Text, Summary: d.Summary, Signature: d.Signature}
		if d.Type == detailSealed {
			r.Reasoning, r.Redacted = d.Data, true
		}
		if !json.Valid([]byte(d.Internal)) {
			d.Internal = ""
		}
		parts = append(parts, &contentv1.Content{InternalJson: d.Internal, Part: &contentv1.Content_Reasoning{Reasoning: r}})
	}
	return parts
}

// writeDetails writes `reasoning_details`, unless the reasoning of all parts is plain text.
func writeDetails(w *jsonwrite.Writer, parts []*contentv1.Content) {
	var reasoning []*contentv1.Content
	plain := true
	for _, part := range parts {
		if r := part.GetReasoning(); r != nil {
			if list, whole := strings.CutPrefix(r.GetSignature(), detailsScheme); whole {
				w.RawMember("reasoning_details", list)
				return
			}
			reasoning = append(reasoning, part)
			plain = plain && !r.GetRedacted() && r.Signature == nil && r.Summary == nil && (part.GetInternalJson() == "" || ownMember(part) != "" || part.GetInternalJson() == thinkTag)
		}
	}
	if plain {
		return
	}
	w.Key("reasoning_details")
	for _, part := range jsonwrite.List(w, reasoning) {
		writeDetail(w, part)
	}
}

func writeDetail(w *jsonwrite.Writer, part *contentv1.Content) {
	r := part.GetReasoning()
	w.BeginObject()
	if r.GetRedacted() {
		w.TextMember("type", detailSealed)
		w.TextMember("data", r.GetReasoning())
	} else {
		w.TextMember("type", detailText)
		w.TextMember("text", r.GetReasoning())
	}
	w.OptText("summary", r.Summary)
	w.OptText("signature", r.Signature)
	w.TextUnlessEmpty("internal", part.GetInternalJson())
	w.TextMember("format", ownFormat)
	w.EndObject()
}
