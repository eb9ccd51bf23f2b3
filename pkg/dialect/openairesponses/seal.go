package openairesponses

import (
	"strings"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

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
