package modelgw_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// sentBody is the body that reached a vendor.
type sentBody struct {
	MaxTokens int64             `json:"max_tokens"`
	Tools     []json.RawMessage `json:"tools"`
	Messages  []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

// roles are the roles of the messages, in one word each.
func (b *sentBody) roles() string {
	var all []string
	for _, m := range b.Messages {
		all = append(all, m.Role)
	}
	return strings.Join(all, " ")
}

// said is the content of all messages with a role.
func (b *sentBody) said(role string) string {
	var all strings.Builder
	for _, m := range b.Messages {
		if m.Role == role {
			all.Write(m.Content)
		}
	}
	return all.String()
}

// What a provider's API needs decides what of a conversation reaches it: whether turns are merged, whether tools and
// pictures stay where they are, what past reasoning goes back, and the bound of the answer.
func TestAConversationReachesAProviderAsItsAPINeedsIt(t *testing.T) {
	t.Parallel()
	const claude, gpt = "anthropic/claude-sonnet-4-5", "openai/gpt-4o"
	thought := func(text string) *contentv1.Content {
		return &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "sig-" + text, Summary: &text, Redacted: true, Signature: new("sig-" + text)}}}
	}
	plain := func(text string) *contentv1.Content { return chat.ReasoningPart(text) }
	assistant := func(parts ...*contentv1.Content) *modelv1.ChatMessage {
		return &modelv1.ChatMessage{Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(parts...)}
	}
	turns := []*modelv1.ChatMessage{chat.User("a"), chat.User("b"), chat.Assistant("c"), chat.Assistant("d"), chat.User("e")}
	tool := &toolv1.ToolInfo{Name: "look", Description: "d", ParametersJson: `{"type":"object","properties":{}}`}
	called := []*modelv1.ChatMessage{chat.User("q"), chat.Assistant("", chat.Call("c1", "look", `{}`)), chat.ToolMessage(&toolv1.ToolResult{
		CallId: "c1", Function: "look", Content: chat.ListContent(chat.TextPart("seen"), chat.ImagePart("data:image/png;base64,iVBORw0KGgo=")),
	})}
	thoughts := []*modelv1.ChatMessage{
		chat.User("q"), assistant(plain("first thought"), chat.TextPart("x")), chat.User("r"), assistant(plain("second thought"), chat.TextPart("y")), chat.User("s"),
	}
	mode := func(m modelv1.ReasoningHistory) *modelv1.GenerateConfig {
		return &modelv1.GenerateConfig{ReasoningHistory: &m}
	}
	for name, tt := range map[string]struct {
		model    string
		messages []*modelv1.ChatMessage
		tools    []*toolv1.ToolInfo
		choice   *toolv1.ToolChoice
		config   *modelv1.GenerateConfig
		want     func(t *testing.T, b *sentBody)
	}{
		"turns are merged": {model: claude, messages: turns, want: func(t *testing.T, b *sentBody) { assert.Equal(t, "user assistant user", b.roles()) }},
		"turns are not merged": {model: gpt, messages: turns, want: func(t *testing.T, b *sentBody) {
			assert.Equal(t, "user user assistant assistant user", b.roles())
		}},
		"tools stay beside calls": {
			model: claude, messages: called, tools: []*toolv1.ToolInfo{tool}, choice: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE),
			want: func(t *testing.T, b *sentBody) { assert.Len(t, b.Tools, 1) },
		},
		"tools that may not be called are not offered": {
			model: gpt, messages: called, tools: []*toolv1.ToolInfo{tool}, choice: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE),
			want: func(t *testing.T, b *sentBody) { assert.Empty(t, b.Tools) },
		},
		"a picture within a result": {model: claude, messages: called, tools: []*toolv1.ToolInfo{tool}, want: func(t *testing.T, b *sentBody) {
			assert.Equal(t, "user assistant user", b.roles())
			assert.Contains(t, b.said("user"), `"tool_result"`)
			assert.Contains(t, b.said("user"), "iVBORw0KGgo=")
		}},
		"a picture after a result": {model: gpt, messages: called, tools: []*toolv1.ToolInfo{tool}, want: func(t *testing.T, b *sentBody) {
			assert.Equal(t, "user assistant tool user", b.roles())
			assert.NotContains(t, b.said("tool"), "iVBORw0KGgo=")
			assert.Contains(t, b.said("user"), "iVBORw0KGgo=")
		}},
		"reasoning is always replayed": {
			model: claude, messages: []*modelv1.ChatMessage{chat.User("q"), assistant(thought("t"), chat.TextPart("x")), chat.User("r")}, config: mode(modelv1.ReasoningHistory_REASONING_HISTORY_NONE),
			want: func(t *testing.T, b *sentBody) { assert.Contains(t, b.said("assistant"), "sig-t") },
		},
		"reasoning by default": {model: gpt, messages: thoughts, want: func(t *testing.T, b *sentBody) {
			assert.Contains(t, b.said("assistant"), "first thought")
			assert.Contains(t, b.said("assistant"), "second thought")
			assert.Contains(t, b.said("assistant"), "think>", "as tagged text")
		}},
		"no reasoning": {model: gpt, messages: thoughts, config: mode(modelv1.ReasoningHistory_REASONING_HISTORY_NONE), want: func(t *testing.T, b *sentBody) {
			assert.NotContains(t, b.said("assistant"), "thought")
		}},
		"the last reasoning": {model: gpt, messages: thoughts, config: mode(modelv1.ReasoningHistory_REASONING_HISTORY_LAST), want: func(t *testing.T, b *sentBody) {
			assert.NotContains(t, b.said("assistant"), "first thought")
			assert.Contains(t, b.said("assistant"), "second thought")
		}},
		"a bound that the API wants": {model: "anthropic/claude-3-5-haiku", messages: called[:1], want: func(t *testing.T, b *sentBody) { assert.Equal(t, int64(4096), b.MaxTokens) }},
		"a bound with room for thinking": {
			model: claude, messages: called[:1], config: &modelv1.GenerateConfig{ReasoningEffort: new("medium")},
			want: func(t *testing.T, b *sentBody) { assert.Equal(t, int64(42_000), b.MaxTokens) },
		},
		"no bound": {model: gpt, messages: called[:1], want: func(t *testing.T, b *sentBody) { assert.Zero(t, b.MaxTokens) }},
		"the call's own bound": {
			model: claude, messages: called[:1], config: &modelv1.GenerateConfig{MaxTokens: new(int64(9))}, want: func(t *testing.T, b *sentBody) { assert.Equal(t, int64(9), b.MaxTokens) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := vendorWith(t, says(http.StatusBadRequest, "application/json", `{"error":{"type":"invalid_request_error","message":"the request is all that matters"}}`))
			g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
				c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), v.URL
			})
			_, err := g.models.Generate(waittest.Context(t), &modelv1.GenerateRequest{
				Parent: project, Model: tt.model, Messages: tt.messages, Tools: tt.tools, ToolChoice: tt.choice, Config: tt.config,
			})
			require.ErrorContains(t, err, "all that matters")
			var body sentBody
			require.NoError(t, json.Unmarshal(<-v.body, &body))
			tt.want(t, &body)
		})
	}
}
