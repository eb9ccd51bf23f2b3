package openairesponses

import (
	"strings"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// Clients send the sealed form of reasoning back unchanged. Reasoning in another form than the vendor's is sealed whole
// (dialect.Seal).

// reasoningID is the prefix of the ids of reasoning.
const reasoningID = "rs_"

// nativeID returns the id of reasoning in the vendor's own sealed form; empty for any other.
func nativeID(part *contentv1.Content) string {
	id := part.GetReasoning().GetSignature()
	if part.GetInternalJson() != "" || !part.GetReasoning().GetRedacted() || !strings.HasPrefix(id, reasoningID) {
		return ""
	}
	return id
}
