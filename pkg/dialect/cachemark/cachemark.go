// Package cachemark reads the marks that authors of messages set for the prompt caches of providers: each at the end of
// a text, up to which a prompt is to be cached. How a format writes them is its own.
package cachemark

import (
	"slices"

	"google.golang.org/protobuf/proto"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// On reports whether a part is marked.
func On(part *contentv1.Content) bool { return part.GetText().GetCacheBreakpoint() }

// In reports whether a message has a mark.
func In(m *modelv1.ChatMessage) bool {
	return slices.ContainsFunc(m.GetContent().GetList().GetParts(), On)
}

// Without returns the messages without their marks; messages that have some are copied.
func Without(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	plain := slices.Clone(messages)
	for i, m := range plain {
		if !In(m) {
			continue
		}
		plain[i] = proto.CloneOf(m)
		for _, part := range plain[i].GetContent().GetList().GetParts() {
			if On(part) {
				part.GetText().CacheBreakpoint = nil
			}
		}
	}
	return plain
}
