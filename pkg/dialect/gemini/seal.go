package gemini

import (
	"encoding/base64"
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// A thought signature is sealed reasoning. The signature of a call is in an anchor, a sealed part that names the call;
// calls of the server without a signature have one too, since it keeps the call's place among the texts. The signature
// of any other part is in a sealed part before it, together with the thought that precedes the two.

// anchorMember is the member of an anchor's internal JSON that names its call.
const anchorMember = "gemini_function_call_id"

// anchor makes the sealed part of a call.
func anchor(callID, signature string) *contentv1.Content {
	var w jsonwrite.Writer
	w.TextObject(anchorMember, callID)
	part := chat.SealedPart(signature, nil)
	part.InternalJson = w.String()
	return part
}

// anchored returns the id of the call that a sealed part is the anchor of; ok is false for other parts.
func anchored(part *contentv1.Content) (callID string, ok bool) {
	if !part.GetReasoning().GetRedacted() || part.GetInternalJson() == "" {
		return "", false
	}
	var internal struct {
		Call *string `json:"gemini_function_call_id"`
	}
	if json.Unmarshal([]byte(part.GetInternalJson()), &internal) != nil || internal.Call == nil {
		return "", false
	}
	return *internal.Call, true
}

// isAnchor reports whether a part is an anchor.
func isAnchor(part *contentv1.Content) bool {
	_, ok := anchored(part)
	return ok
}

// emptyAnchor reports whether a part is the anchor of a call without a signature.
func emptyAnchor(part *contentv1.Content) bool {
	return part.GetReasoning().GetReasoning() == "" && isAnchor(part)
}

// Signatures are bytes in the format. Clients decode them, and encode them anew in either alphabet of base64: a text
// that is none would not survive. Such a text, and reasoning of which a signature is not all, is sealed whole.

// wrapped is the signature of a sealed part as a client of the format keeps it. foreign means that the part is another
// vendor's.
func wrapped(part *contentv1.Content, foreign bool) string {
	r := part.GetReasoning()
	raw, err := base64.StdEncoding.DecodeString(r.GetReasoning())
	plain := err == nil && base64.StdEncoding.EncodeToString(raw) == r.GetReasoning() && dialect.Unseal(string(raw)) == nil
	if plain && !foreign {
		return r.GetReasoning()
	}
	return base64.StdEncoding.EncodeToString([]byte(dialect.Seal(part)))
}

// unwrapped is the part that was sealed whole; nil for a signature of the format's own.
func unwrapped(signature string) *contentv1.Content {
	raw, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return nil
	}
	return dialect.Unseal(string(raw))
}

// isSealed reports whether reasoning needs more than its text to be taken again.
func isSealed(part *contentv1.Content) bool {
	r := part.GetReasoning()
	return r.GetRedacted() || r != nil && r.Signature != nil
}

// isForeign reports whether a sealed part that is no anchor cannot be the server's own.
func isForeign(part *contentv1.Content) bool {
	r := part.GetReasoning()
	return r.Signature != nil || part.GetInternalJson() != "" || r.Summary != nil && r.GetSummary() == ""
}
