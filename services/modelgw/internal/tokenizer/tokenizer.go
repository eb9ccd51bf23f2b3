// Package tokenizer estimates how many tokens a conversation is with a tokenizer, for models whose provider does not
// count them. An estimate is for limits and displays, never for a bill. What is estimated for each call uses pkg/tokens
// instead: a tokenizer would take most of the time of a call.
package tokenizer

import (
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/tokens"
)

// Messages estimates the tokens of messages, their media included; never less than 1. Texts count as if each were on a
// line of its own.
func Messages(messages []*modelv1.ChatMessage) int64 {
	text, media := tokens.Texts(messages)
	if text != "" {
		return Text(text) + media
	}
	return max(1, media)
}

// Tools estimates the definitions of tools; zero when there are none.
func Tools(tools []*toolv1.ToolInfo) int64 {
	if len(tools) == 0 {
		return 0
	}
	return Text(ToolsText(tools))
}

// ToolsText returns the definitions of tools as a text that counts: the form of OpenAI, which most models have read.
func ToolsText(tools []*toolv1.ToolInfo) string {
	var w jsonwrite.Writer
	for _, tool := range tools {
		openai.WriteFunction(&w, tool, nil, nil)
	}
	return w.String()
}
