package openai

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/cachemark"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Names and the value of the members that mark a part for the cache, and that declare that a request has marks. They
// are the same in all of OpenAI's formats.
const (
	markMember    = "prompt_cache_breakpoint"
	optionsMember = "prompt_cache_options"
	explicitMode  = `{"mode":"explicit"}`
)

// Marks are the boundaries that a request sets for OpenAI's prompt cache: those of the authors of messages, and one at
// the end of the leading system messages. If an answer or a tool's result has one, there are none: the formats have no
// place for it. The zero value has none.
type Marks struct{ messages []*modelv1.ChatMessage }

// NewMarks returns the marks of messages, if they are wanted.
func NewMarks(messages []*modelv1.ChatMessage, wanted bool) Marks {
	some := false
	for _, m := range messages {
		if !cachemark.In(m) {
			continue
		}
		if m.GetRole() == modelv1.Role_ROLE_ASSISTANT || m.GetRole() == modelv1.Role_ROLE_TOOL {
			return Marks{}
		}
		some = true
	}
	if !wanted || !some {
		return Marks{}
	}
	return Marks{messages}
}

// Set reports whether there are any.
func (m Marks) Set() bool { return len(m.messages) > 0 }

// EndsSystem reports whether the end of the message at i is marked, as the last one of the leading system messages.
func (m Marks) EndsSystem(i int) bool {
	isOther := func(m *modelv1.ChatMessage) bool { return m.GetRole() != modelv1.Role_ROLE_SYSTEM }
	return m.Set() && (i+1 == len(m.messages) || isOther(m.messages[i+1])) && !slices.ContainsFunc(m.messages[:i+1], isOther)
}

// Write writes the mark of a part, if it has one; ends marks it in any case.
func (m Marks) Write(w *jsonwrite.Writer, part *contentv1.Content, ends bool) {
	if m.Set() && (ends || cachemark.On(part)) {
		w.RawMember(markMember, explicitMode)
	}
}

// Declare writes the member that declares that a request has marks, if it has any.
func (m Marks) Declare(w *dialect.MemberWriter) {
	if m.Set() {
		w.Member(optionsMember, func() { w.Body.Raw(explicitMode) })
	}
}
