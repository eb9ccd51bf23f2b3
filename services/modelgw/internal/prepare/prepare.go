// Package prepare converts a caller's request to a form that a provider accepts: instructions first, tools by the
// choice, past reasoning and media in tool results as the provider requires, neighbouring messages merged if necessary.
//
// The functions have no side effects. Configurations and messages are never modified in place: a message that must
// differ is a copy with an id of its own.
package prepare

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/prefix"
	"github.com/evalfleet/evalfleet/pkg/tokens"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Conversation is the provider's input.
type Conversation struct {
	Messages []*modelv1.ChatMessage
	Tools    []*toolv1.ToolInfo
	Choice   *toolv1.ToolChoice
	Config   *modelv1.GenerateConfig
	// Client means that a client of an endpoint asks. Its messages follow the rules of the model's API, for which others
	// are refused, and its media may be addresses of the web which the provider fetches.
	Client bool
	// Changed reports whether the messages differ from the given ones.
	Changed bool
	// Summary is that of Messages; nil if it is unknown.
	Summary *Summary
	// Count is that of Messages; nil: they are counted when their tokens are asked for.
	Count *tokens.Count
	// Given returns the hash of the messages as they were before preparation; nil: Messages are those.
	Given func(digest prefix.Digester) (prefix.Hash, error)
}

// Hash returns the hash of the given messages. Preparation depends on them, on the configuration, on the model and on
// Client alone: where those are equal too, equal hashes are equal prepared messages.
func (c *Conversation) Hash(digest prefix.Digester) (prefix.Hash, error) {
	if c.Given != nil {
		return c.Given(digest)
	}
	return prefix.Of(c.Messages, digest)
}

// Tokens estimates the messages.
func (c *Conversation) Tokens() int64 {
	if c.Count != nil {
		return c.Count.Tokens()
	}
	return tokens.Rough(c.Messages)
}

// Prepare prepares a conversation for a provider. It fails if media is neither inline nor stored, nor an address that
// may be one; Load loads stored media.
func Prepare(given Conversation, c provider.Capabilities) (Conversation, error) {
	prepared := Conversation{Messages: given.Messages, Config: given.Config, Given: given.Hash, Client: given.Client}
	if prepared.Config == nil {
		prepared.Config = &modelv1.GenerateConfig{}
	}
	if tokens := c.MaxTokensFor(prepared.Config); prepared.Config.MaxTokens == nil && tokens > 0 {
		prepared.Config = chat.Merge(prepared.Config, &modelv1.GenerateConfig{MaxTokens: &tokens})
	}
	summary, count := summaryOf(given), given.Count
	if text := prepared.Config.GetSystemMessage(); text != "" {
		system := chat.System(text)
		prepared.Messages, prepared.Changed = slices.Concat([]*modelv1.ChatMessage{system}, prepared.Messages), true
		summary = SummaryOf(system).And(summary)
		if count != nil {
			count = new(tokens.Of(system).And(*count))
		}
	}
	prepared.Tools, prepared.Choice = Tools(runnable(given.Tools, c.Hosted), given.Choice, c.ToolsRequired)
	edited := false
	edit := func(messages []*modelv1.ChatMessage) {
		edited = edited || !same(messages, prepared.Messages)
		prepared.Messages = messages
	}
	if summary.reasoning {
		edit(Reasoning(prepared.Messages, reasoningMode(prepared.Config, c)))
	}
	others := given.Client // A client of an endpoint returns the signatures of calls where there are any.
	if summary.reasoning && c.Sealer != "" {
		opened := seals(prepared.Messages, c.Sealer)
		others = others || !same(opened, prepared.Messages)
		edit(opened)
	}
	if others && c.SignCalls != nil {
		edit(signed(prepared.Messages, c.SignCalls))
	}
	switch {
	case given.Client && !c.Responses:
		edit(withoutOrigins(prepared.Messages))
	case given.Client && summary.reasoning:
		edit(withoutOpenReasoning(prepared.Messages))
	}
	if summary.toolMedia {
		edit(ToolMedia(prepared.Messages, c.Features.GetToolResultImages(), c.Features.GetToolResultDocuments()))
	}
	if given.Client && !c.Responses { // Media that moved are between results too.
		edit(withResultsAtCalls(prepared.Messages))
	}
	c.MergeAssistant = c.MergeAssistant || given.Client && c.UserFirst
	if edited || summary.merges(c.MergeUser, c.MergeAssistant, c.MergeSystem) { // Media that moved are messages of their own.
		edit(Merge(prepared.Messages, c.MergeUser, c.MergeAssistant, c.MergeSystem))
	}
	if given.Client {
		edit(withRules(prepared.Messages, c))
		if c.CallsNeedTools && len(prepared.Tools) == 0 && hasCalls(prepared.Messages) {
			prepared.Tools, prepared.Choice = []*toolv1.ToolInfo{noTool}, chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO)
		}
	}
	if !edited {
		prepared.Summary, prepared.Count = &summary, count
	}
	prepared.Changed = prepared.Changed || edited
	if !summary.media {
		return prepared, nil
	}
	if !given.Client {
		c.Fetches = provider.Fetches{}
	}
	return prepared, inline(prepared.Messages, c.Fetches)
}

// same reports whether two lists hold the same messages.
func same(a, b []*modelv1.ChatMessage) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// runnable are the tools without a client's offers of tools that the model's vendor does not run: no other party would
// run them. The list is not modified.
func runnable(tools []*toolv1.ToolInfo, h provider.Hosted) []*toolv1.ToolInfo {
	lacks := func(tool *toolv1.ToolInfo) bool {
		offer, ok := hosted.Of(tool)
		return ok && h.Lacks(offer, tools)
	}
	if !slices.ContainsFunc(tools, lacks) {
		return tools
	}
	var left []*toolv1.ToolInfo
	for _, tool := range tools {
		if !lacks(tool) {
			left = append(left, tool)
		}
	}
	return left
}

// Tools applies a choice: a named function keeps only the tools of that name, none removes all tools, unless the
// provider needs them, and without tools the choice is none. An unset choice is auto.
func Tools(tools []*toolv1.ToolInfo, choice *toolv1.ToolChoice, required bool) ([]*toolv1.ToolInfo, *toolv1.ToolChoice) {
	const none = toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE
	if name := choice.GetFunction(); name != "" {
		tools = slices.DeleteFunc(slices.Clone(tools), func(t *toolv1.ToolInfo) bool { return t.GetName() != name })
	}
	switch {
	case len(tools) == 0, choice.GetMode() == none && !required:
		return nil, chat.ModeChoice(none)
	case choice.GetFunction() == "" && choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_UNSPECIFIED:
		return tools, chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO)
	default:
		return tools, choice
	}
}

// changed returns a copy of a message with an id of its own.
func changed(m *modelv1.ChatMessage) *modelv1.ChatMessage {
	c := proto.CloneOf(m)
	c.Id = chat.NewID()
	return c
}
