package prepare

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Summary is what must be known of messages to see which steps of their preparation do nothing. The summary of a
// growing conversation is updated from its new messages alone. The zero Summary is that of no messages.
type Summary struct {
	// media, toolMedia and reasoning report whether a message has such a part; toolMedia is media in a tool's result.
	media, toolMedia, reasoning bool
	// neighbours are the roles of which two messages follow each other, a bit for each.
	neighbours uint32
	// first and last are the roles of the outer messages; any reports whether there are messages.
	first, last modelv1.Role
	any         bool
}

// SummaryOf returns the summary of messages.
func SummaryOf(messages ...*modelv1.ChatMessage) Summary {
	var s Summary
	for _, m := range messages {
		parts := m.GetContent().GetList().GetParts()
		media := slices.ContainsFunc(parts, func(p *contentv1.Content) bool { return chat.Media(p) != nil })
		s = s.And(Summary{
			media: media, toolMedia: media && m.GetRole() == modelv1.Role_ROLE_TOOL, reasoning: slices.ContainsFunc(parts, isReasoning),
			first: m.GetRole(), last: m.GetRole(), any: true,
		})
	}
	return s
}

// And returns the summary of the messages of both, one after another.
func (s Summary) And(next Summary) Summary {
	switch {
	case !next.any:
		return s
	case !s.any:
		return next
	}
	both := Summary{
		media: s.media || next.media, toolMedia: s.toolMedia || next.toolMedia, reasoning: s.reasoning || next.reasoning,
		neighbours: s.neighbours | next.neighbours, first: s.first, last: next.last, any: true,
	}
	if s.last == next.first {
		both.neighbours |= bit(s.last)
	}
	return both
}

// merges reports whether consecutive messages have one of the given roles.
func (s Summary) merges(user, assistant, system bool) bool {
	has := func(wanted bool, role modelv1.Role) bool { return wanted && s.neighbours&bit(role) != 0 }
	return has(user, modelv1.Role_ROLE_USER) || has(assistant, modelv1.Role_ROLE_ASSISTANT) || has(system, modelv1.Role_ROLE_SYSTEM)
}

func bit(r modelv1.Role) uint32 { return 1 << (uint32(r) % 32) }

func summaryOf(c Conversation) Summary {
	if c.Summary != nil {
		return *c.Summary
	}
	return SummaryOf(c.Messages...)
}
