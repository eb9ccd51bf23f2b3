// Package mistral is what the formats of Mistral's two APIs share: errors, usage, and the chunks of which the content
// of a message consists. The formats are packages of their own, beside this one: mistralchat and mistralconversations.
//
// Reference: https://docs.mistral.ai/api.
package mistral

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// AnyTool is the word of chat completions for a choice of any tool.
const AnyTool = "any"

// Usage is usage on the wire. Neither the tokens of reasoning nor those written to the cache are counted separately.
type Usage struct {
	Prompt     dialect.Tokens  `json:"prompt_tokens"`
	Completion *dialect.Tokens `json:"completion_tokens"`
	Total      dialect.Tokens  `json:"total_tokens"`
	Details    struct {
		Cached *dialect.Tokens `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// Message is the usage in the canonical form; nil if there is none, or if it is impossible.
func (u *Usage) Message() *modelv1.ModelUsage {
	if u == nil {
		return nil
	}
	m := &modelv1.ModelUsage{InputTokens: int64(u.Prompt), TotalTokens: int64(u.Total), InputTokensCacheRead: (*int64)(u.Details.Cached)}
	if u.Completion != nil {
		m.OutputTokens = int64(*u.Completion)
	} else {
		m.OutputTokens = max(0, int64(u.Total-u.Prompt))
	}
	return dialect.CacheApart(m)
}

// WriteUsage writes usage; nil is usage of no tokens.
func WriteUsage(w *jsonwrite.Writer, u *modelv1.ModelUsage) {
	input := chat.InputTokens(u)
	w.BeginObject()
	w.IntMember("prompt_tokens", input)
	w.IntMember("completion_tokens", u.GetOutputTokens())
	w.IntMember("total_tokens", max(u.GetTotalTokens(), input+u.GetOutputTokens()))
	if u != nil && u.InputTokensCacheRead != nil {
		w.BeginObjectMember("prompt_tokens_details")
		w.IntMember("cached_tokens", u.GetInputTokensCacheRead())
		w.EndObject()
	}
	w.EndObject()
}
