package anthropic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/anthropic"
)

// taking is a tool with these parameters.
func taking(name, parameters string) *toolv1.ToolInfo {
	properties := map[string]any{}
	for parameter := range strings.FieldsSeq(parameters) {
		properties[parameter] = map[string]any{"type": "string"}
	}
	schema, _ := json.Marshal(map[string]any{"type": "object", "properties": properties})
	return &toolv1.ToolInfo{Name: name, ParametersJson: string(schema)}
}

func withOptions(tool *toolv1.ToolInfo, options string) *toolv1.ToolInfo {
	tool.OptionsJson = options
	return tool
}

func computerTool() *toolv1.ToolInfo {
	return taking("computer", "action actions coordinate duration press_enter region repeat scroll_amount scroll_direction start_coordinate text")
}

func editorTool() *toolv1.ToolInfo {
	return taking("text_editor", "command file_text insert_line new_str old_str path view_range")
}

func searchTool(options string) *toolv1.ToolInfo {
	return withOptions(taking("web_search", "query"), `{"__internal_tool_type__":"web_search","anthropic":`+options+`}`)
}

// sentTools are the types of the tools that a model is sent, `function` for functions, and the request.
func sentTools(t *testing.T, model string, r *provider.Request) (kinds []string, got asked, response *provider.Response) {
	t.Helper()
	v, url := newVendor(t, map[string][]string{"/v1/messages": {plain}})
	response = generate(t, anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: url}, provider.Spec{Model: model}, r)
	require.Len(t, v.asked, 1)
	tools, _ := v.asked[0].body["tools"].([]any)
	for _, tool := range tools {
		kind, ok := tool.(map[string]any)["type"].(string)
		if !ok {
			kind = "function"
		}
		kinds = append(kinds, kind)
	}
	return kinds, v.asked[0], response
}

func TestToolsOfTheServerByModel(t *testing.T) {
	t.Parallel()
	code := withOptions(taking("code_execution", "code"), `{"__internal_tool_type__":"code_execution","providers":{"anthropic":{}}}`)
	memory := taking("memory", "command file_text insert_line insert_text new_path new_str old_path old_str path view_range")
	for name, tt := range map[string]struct {
		tool         *toolv1.ToolInfo
		model, betas string
		kinds        []string
	}{
		"a computer, old":               {computerTool(), "claude-sonnet-4-5", "computer-use-2025-01-24", []string{"computer_20250124"}},
		"a computer, new":               {computerTool(), "claude-opus-4-5", "computer-use-2025-11-24", []string{"computer_20251124"}},
		"a computer, not of this model": {computerTool(), "claude-3-5-haiku", "", []string{"function"}},
		"a computer, by a toolset":      {computerTool(), "claude-fable-5", "", []string{"computer_toolset_20260801"}},
		"another computer":              {taking("computer", "action"), "claude-opus-4-8", "", []string{"function"}},
		"an editor":                     {editorTool(), "claude-haiku-4-5", "", []string{"text_editor_20250728"}},
		"an editor, older":              {editorTool(), "claude-3-7-sonnet-latest", "", []string{"text_editor_20250124"}},
		"an editor, oldest":             {editorTool(), "claude-3-5-sonnet-latest", "computer-use-2024-10-22", []string{"text_editor_20241022"}},
		"an editor, none":               {editorTool(), "claude-3-5-haiku-latest", "", []string{"function"}},
		"a memory":                      {memory, "claude-opus-5", "context-management-2025-06-27", []string{"memory_20250818"}},
		"a memory, code name":           {memory, "heron-preview", "", []string{"function"}},
		"code":                          {code, "claude-opus-5", "code-execution-2025-08-25", []string{"code_execution_20250825"}},
		"code, code name":               {code, "heron-preview", "", []string{"function"}},
		"a search":                      {searchTool(`{}`), "claude-sonnet-4-5", "web-fetch-2025-09-10", []string{"web_fetch_20250910", "web_search_20250305"}},
		"a search that filters":         {searchTool(`null`), "heron-preview", "", []string{"web_fetch_20260209", "web_search_20260209"}},
		"a search of a version":         {searchTool(`{"type":"web_search_20250305"}`), "claude-opus-4-8", "web-fetch-2025-09-10", []string{"web_fetch_20250910", "web_search_20250305"}},
		"a search, too old":             {searchTool(`{}`), "claude-3-haiku-20240307", "", []string{"function"}},
		"another's search":              {withOptions(taking("web_search", "query"), `{"__internal_tool_type__":"web_search","tavily":{}}`), "claude-opus-4-8", "", []string{"function"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kinds, got, _ := sentTools(t, tt.model, &provider.Request{Tools: []*toolv1.ToolInfo{tt.tool}})
			assert.Equal(t, tt.kinds, kinds)
			assert.Equal(t, tt.betas, got.header.Get("Anthropic-Beta"))
			off := &modelv1.GenerateConfig{InternalTools: new(false), MaxTokens: new(int64(100))}
			kinds, got, _ = sentTools(t, tt.model, &provider.Request{Tools: []*toolv1.ToolInfo{tt.tool}, Config: off})
			assert.Equal(t, []string{"function"}, kinds)
			assert.Empty(t, got.header.Get("Anthropic-Beta"))
		})
	}
}

// The options of a search are those of the vendor; each goes to the tools that take it.
func TestOptionsOfASearch(t *testing.T) {
	t.Parallel()
	options := searchTool(`{"max_uses":3,"allowed_domains":["a"],"user_location":{"type":"approximate"},"citations":{"enabled":true},"other":1}`)
	_, got, _ := sentTools(t, "claude-opus-4-8", &provider.Request{Tools: []*toolv1.ToolInfo{options}, ToolChoice: chat.FunctionChoice("web_search")})
	want := `[
		{"name":"web_fetch","type":"web_fetch_20260209","allowed_domains":["a"],"max_uses":3,"citations":{"enabled":true}},
		{"name":"web_search","type":"web_search_20260209","allowed_domains":["a"],"max_uses":3,"user_location":{"type":"approximate"},
		 "allowed_callers":["direct","code_execution_20260120"],"cache_control":{"type":"ephemeral"}}]`
	sent, err := json.Marshal(got.body["tools"])
	require.NoError(t, err)
	assert.JSONEq(t, want, string(sent))
	_, got, _ = sentTools(t, "claude-sonnet-5-5", &provider.Request{Tools: []*toolv1.ToolInfo{searchTool(`{}`)}, ToolChoice: chat.FunctionChoice("web_search")})
	assert.NotContains(t, got.body["tools"].([]any)[1], "allowed_callers", "of a model that cannot be made to search")

	p, err := openModel(t, anthropic.Config{APIKey: config.NewSecret("k")}, provider.Spec{Model: "claude-opus-4-8"})
	require.NoError(t, err)
	for _, tool := range []*toolv1.ToolInfo{searchTool(`{"type":"web_search_1"}`), withOptions(taking("mcp_server_x", ""), `{"name":"x"}`)} {
		_, err = p.Generate(t.Context(), &provider.Request{Config: &modelv1.GenerateConfig{}, Tools: []*toolv1.ToolInfo{tool}})
		require.ErrorContains(t, err, "tools")
	}
}

// The model knows the editor under another name, which callers see neither in the answer nor in its stream.
func TestTheEditorHasItsOwnNameForCallers(t *testing.T) {
	t.Parallel()
	v, url := newVendor(t, map[string][]string{"/v1/messages": {
		`{"id":"m","model":"served","content":[{"type":"tool_use","id":"c","name":"str_replace_based_edit_tool","input":{"command":"view"}}],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2}}`,
	}})
	response := generate(t, anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: url}, provider.Spec{Model: "claude-opus-4-8"}, &provider.Request{
		Tools: []*toolv1.ToolInfo{editorTool()}, ToolChoice: chat.FunctionChoice("text_editor"),
	})
	assert.Equal(t, "text_editor", chat.FirstMessage(response.Output).GetToolCalls()[0].GetFunction())
	assert.Equal(t, map[string]any{"type": "tool", "name": "str_replace_based_edit_tool"}, v.asked[0].body["tool_choice"])
}

// Anthropic calls the tools of such a server itself. Its credential is not recorded.
func TestServersOfToolsAreCalledByTheVendor(t *testing.T) {
	t.Parallel()
	server := withOptions(taking("mcp_server_docs", ""), `{"name":"docs","type":"http","url":"https://mcp.example","headers":{"Authorization":"Bearer s3cret"},"tools":["find"]}`)
	all := withOptions(taking("mcp_server_all", ""), `{"name":"all","type":"sse","url":"https://all.example","tools":"all"}`)
	kinds, got, response := sentTools(t, "claude-opus-4-8", &provider.Request{
		Tools: []*toolv1.ToolInfo{server, all, taking("f", "a")}, Record: provider.RecordAll,
	})
	assert.Equal(t, []string{"function"}, kinds)
	assert.Equal(t, "mcp-client-2025-04-04", got.header.Get("Anthropic-Beta"))
	assert.Equal(t, []any{
		map[string]any{
			"type": "url", "name": "docs", "url": "https://mcp.example", "authorization_token": "s3cret",
			"tool_configuration": map[string]any{"enabled": true, "allowed_tools": []any{"find"}},
		},
		map[string]any{"type": "url", "name": "all", "url": "https://all.example"},
	}, got.body["mcp_servers"])
	assert.NotContains(t, response.Call.String(), "s3cret")

	_, got, response = sentTools(t, "claude-opus-4-8", &provider.Request{Tools: []*toolv1.ToolInfo{server, taking("f", "a")}, ToolChoice: chat.FunctionChoice("mcp_server_docs")})
	assert.NotContains(t, got.body, "tool_choice", "no tool has the name of a server")
	assert.Contains(t, strings.Join(response.Warnings, ""), "mcp_server_docs")

	_, _, response = sentTools(t, "claude-opus-4-8", &provider.Request{Tools: []*toolv1.ToolInfo{
		withOptions(taking("mcp_server_x", ""), `{"name":"x","url":"https://x.example","headers":{"authorization":"t","X-Team":"s3cret"}}`),
	}})
	require.Len(t, response.Warnings, 1, "headers that the vendor cannot send are said to be left out")
	assert.Contains(t, response.Warnings[0], "X-Team")
	assert.NotContains(t, response.Warnings[0], "s3cret")
}

// No tool has the name of a set of tools, so that no choice can name it. A cloud without the set has the one tool.
func TestAComputerThatIsASetOfTools(t *testing.T) {
	t.Parallel()
	request := &provider.Request{Tools: []*toolv1.ToolInfo{computerTool()}, ToolChoice: chat.FunctionChoice("computer")}
	_, got, response := sentTools(t, "claude-fable-5", request)
	assert.Equal(t, map[string]any{"type": "auto"}, got.body["tool_choice"])
	assert.Len(t, response.Warnings, 1)
	assert.Contains(t, response.Output.GetMetadataJson(), "tool_choice_degraded")

	v, url := newVendor(t, map[string][]string{"/model/anthropic.claude-fable-5/invoke": {`{"content":[{"type":"text","text":"x"}],"stop_reason":"end_turn"}`}})
	p, err := openModel(t, bedrockAt(url), provider.Spec{Model: "bedrock/anthropic.claude-fable-5", Args: `{"streaming":false}`})
	require.NoError(t, err)
	_, err = p.Generate(t.Context(), &provider.Request{Tools: request.Tools, Messages: []*modelv1.ChatMessage{chat.User("q")}})
	require.NoError(t, err)
	assert.Equal(t, "computer_20251124", v.asked[0].body["tools"].([]any)[0].(map[string]any)["type"])
}
