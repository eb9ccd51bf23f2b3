package bedrockconverse

import (
	"encoding/base64"
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Redacted content is sealed reasoning whose bytes, in base64, are in the part's internal JSON: it has nothing to read.
// Reasoning that another vendor sealed is sealed whole for a client (dialect.Seal): in the signature of its summary, or
// as redacted content where it has none.

// sealMember is the member of the internal JSON that has the redacted content.
const sealMember = "bedrock_redacted_content"

// redacted makes the part of redacted content.
func redacted(content string) *contentv1.Content {
	var w jsonwrite.Writer
	w.TextObject(sealMember, content)
	return &contentv1.Content{InternalJson: w.String(), Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Redacted: true}}}
}

// sealedContent returns the redacted content of a part; empty if it has none that can be sent.
func sealedContent(part *contentv1.Content) string {
	var internal struct {
		Content string `json:"bedrock_redacted_content"`
	}
	if part.GetInternalJson() == "" || json.Unmarshal([]byte(part.GetInternalJson()), &internal) != nil || dialect.CheckBase64("", internal.Content) != nil {
		return ""
	}
	return internal.Content
}

// answered returns what an answer has of reasoning: a text with its signature, or redacted content.
func answered(part *contentv1.Content) (text, signature, content string) {
	r := part.GetReasoning()
	switch {
	case !r.GetRedacted():
		return r.GetReasoning(), r.GetSignature(), ""
	case sealedContent(part) != "":
		return "", "", sealedContent(part)
	case r.GetSummary() != "":
		return r.GetSummary(), dialect.Seal(part), ""
	default:
		return "", "", base64.StdEncoding.EncodeToString([]byte(dialect.Seal(part)))
	}
}

// said is the text of reasoning in an answer.
func said(part *contentv1.Content) string {
	text, _, _ := answered(part)
	return text
}

// returned reads reasoning that a client sends back.
func (r *reasoningContent) returned() *contentv1.Content {
	if r.Text == nil {
		if bytes, err := base64.StdEncoding.DecodeString(r.Redacted); err == nil {
			if part := dialect.Unseal(string(bytes)); part != nil {
				return part
			}
		}
		return redacted(r.Redacted)
	}
	if part := dialect.Unseal(r.Text.Signature); part != nil {
		return part
	}
	own := &contentv1.Reasoning{Reasoning: r.Text.Text}
	if r.Text.Signature != "" {
		own.Signature = &r.Text.Signature
	}
	return &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: own}}
}

func writeReasoning(w *jsonwrite.Writer, text, signature string) {
	w.BeginObject()
	w.BeginObjectMember("reasoningContent")
	w.BeginObjectMember("reasoningText")
	w.TextMember("text", text)
	w.TextUnlessEmpty("signature", signature)
	w.EndObject()
	w.EndObject()
	w.EndObject()
}

func writeRedacted(w *jsonwrite.Writer, content string) {
	w.BeginObject()
	w.TextObjectMember("reasoningContent", "redactedContent", content)
	w.EndObject()
}

func writeCall(w *jsonwrite.Writer, id string, call *toolv1.ToolCall) {
	w.BeginObject()
	w.BeginObjectMember("toolUse")
	w.TextMember("toolUseId", id)
	w.TextMember("name", call.GetFunction())
	w.RawMember("input", dialect.ArgumentsOf(call))
	w.EndObject()
	w.EndObject()
}
