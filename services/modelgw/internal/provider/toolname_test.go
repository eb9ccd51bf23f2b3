package provider_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func offering(names ...string) *provider.Request {
	r := &provider.Request{}
	for _, name := range names {
		r.Tools = append(r.Tools, &toolv1.ToolInfo{Name: name})
	}
	return r
}

func named(tools []*toolv1.ToolInfo) (names []string) {
	for _, tool := range tools {
		names = append(names, tool.GetName())
	}
	return names
}

func TestToolsHaveNamesThatTheFormatHas(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("l", 65)
	longest := strings.Repeat("l", 129)
	for name, tt := range map[string]struct {
		format      string
		given, want []string
	}{
		"those that it has stay": {openaichat.Name, []string{"f", "a_b-C9", long[1:]}, []string{"f", "a_b-C9", long[1:]}},
		"other characters":       {openaichat.Name, []string{"mcp.server:tool-1", "ä b"}, []string{"mcp_server_tool-1", "__b"}},
		"two that become one":    {openaichat.Name, []string{"a.b", "a:b", "a_b"}, []string{"a_b_309daab7", "a_b_b412fccb", "a_b"}},
		"long ones":              {openaichat.Name, []string{long, long + "m"}, []string{long[:55] + "_872341d8", long[:55] + "_7b23c069"}},
		"longer ones":            {anthropic.Name, []string{long, longest}, []string{long, longest[:119] + "_aefd95d8"}},
		"of Gemini":              {gemini.Name, []string{"mcp.server:tool-1", "9", "-f", "a/b", "_"}, []string{"mcp.server:tool-1", "_9", "_-f", "a_b", "_"}},
		"of no format":           {"", []string{"a b", longest}, []string{"a b", longest}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &provider.Model{Kind: provider.Kind{Dialect: tt.format}}
			given := offering(tt.given...)
			sent, _ := m.WithToolNames(given)
			assert.Equal(t, tt.want, named(sent.Tools))
			assert.Equal(t, tt.given, named(given.Tools), "the given ones stay")
		})
	}
}

// A tool that the vendor runs keeps its name, and no other gets that.
func TestNamesOfToolsAreNoHostedTools(t *testing.T) {
	t.Parallel()
	m := &provider.Model{Kind: provider.Kind{Dialect: openaichat.Name}}
	r := offering("web.search", hosted.WebSearch)
	r.Tools[1].OptionsJson = `{"hosted":{"kind":"web_search"}}`
	sent, _ := m.WithToolNames(r)
	assert.Equal(t, []string{"web_search_99cf2bc2", hosted.WebSearch}, named(sent.Tools))
}

// A conversation names tools in its calls and their results, also such as are no longer on offer.
func TestNamesOfToolsAreRestored(t *testing.T) {
	t.Parallel()
	m := &provider.Model{Kind: provider.Kind{Dialect: openaichat.Name}}
	r := offering("a.b", "f")
	var streamed []string
	r.Stream = func(d *modelv1.GenerateDelta) { streamed = append(streamed, d.GetToolCall().GetFunction()) }
	r.ToolChoice = chat.FunctionChoice("a.b")
	r.Messages = []*modelv1.ChatMessage{
		{Role: modelv1.Role_ROLE_ASSISTANT, ToolCalls: []*toolv1.ToolCall{chat.Call("1", "a.b", "{}"), chat.Call("2", "gone:g", "{}"), chat.Call("3", "f", "{}")}},
		{Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{"1"}, Function: "a.b"},
		{Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{"2"}, Function: "gone:g"},
		{Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{"4"}, Function: "lost/l"},
	}
	sent, restore := m.WithToolNames(r)
	assert.Equal(t, []string{"a_b", "f"}, named(sent.Tools))
	assert.Equal(t, "a_b", sent.ToolChoice.GetFunction())
	calls := sent.Messages[0].GetToolCalls()
	assert.Equal(t, []string{"a_b", "gone_g", "f"}, []string{calls[0].GetFunction(), calls[1].GetFunction(), calls[2].GetFunction()})
	assert.Equal(t, []string{"a_b", "gone_g", "lost_l"}, []string{sent.Messages[1].GetFunction(), sent.Messages[2].GetFunction(), sent.Messages[3].GetFunction()})
	assert.Equal(t, "a.b", r.Messages[1].GetFunction(), "the given ones stay")

	sent.Stream(&modelv1.GenerateDelta{Piece: &modelv1.GenerateDelta_ToolCall{ToolCall: &modelv1.ToolCallDelta{Function: "a_b"}}})
	assert.Equal(t, []string{"a.b"}, streamed)
	output := &modelv1.ModelOutput{Choices: []*modelv1.Choice{{Message: &modelv1.ChatMessage{ToolCalls: []*toolv1.ToolCall{chat.Call("5", "a_b", "{}"), chat.Call("6", "f", "{}")}}}}}
	compacted := []*modelv1.ChatMessage{chat.Assistant("", chat.Call("1", "a_b", "{}")), {Role: modelv1.Role_ROLE_TOOL, Function: "gone_g"}}
	restore(&provider.Response{Output: output, Compacted: compacted})
	assert.Equal(t, []string{"a.b", "gone:g"}, []string{compacted[0].GetToolCalls()[0].GetFunction(), compacted[1].GetFunction()})
	made := output.GetChoices()[0].GetMessage().GetToolCalls()
	require.Len(t, made, 2)
	assert.Equal(t, []string{"a.b", "f"}, []string{made[0].GetFunction(), made[1].GetFunction()})
}
