package clienttool_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/dialect/clienttool"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// parametersOf are the sorted names of the parameters of a tool; the required ones are among them.
func parametersOf(t *testing.T, tool *toolv1.ToolInfo) []string {
	t.Helper()
	var schema struct {
		Type       string                    `json:"type"`
		Properties map[string]map[string]any `json:"properties"`
		Required   []string                  `json:"required"`
	}
	require.NoError(t, json.Unmarshal([]byte(tool.GetParametersJson()), &schema), tool.GetName())
	assert.Equal(t, "object", schema.Type)
	for _, name := range schema.Required {
		assert.Contains(t, schema.Properties, name)
	}
	assert.NotEmpty(t, tool.GetDescription())
	return slices.Sorted(maps.Keys(schema.Properties))
}

func TestToolsOfAnthropicsClients(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string][]string{
		"computer_20241022":    {"action", "coordinate", "duration", "scroll_amount", "scroll_direction", "start_coordinate", "text"},
		"computer_20251124":    {"action", "coordinate", "duration", "scroll_amount", "scroll_direction", "start_coordinate", "text"},
		"bash_20250124":        {"command", "restart"},
		"text_editor_20250728": {"command", "file_text", "insert_line", "insert_text", "new_str", "old_str", "path", "view_range"},
		"memory_20250818":      {"command", "file_text", "insert_line", "insert_text", "new_path", "new_str", "old_path", "old_str", "path", "view_range"},
	} {
		tool, ok := clienttool.Anthropic(kind, "n", 0, 0)
		require.True(t, ok, kind)
		assert.Equal(t, "n", tool.GetName())
		assert.Equal(t, want, parametersOf(t, tool), kind)
		assert.NotContains(t, tool.GetDescription(), "pixels", kind)
	}
	tool, _ := clienttool.Anthropic("computer_20250124", "computer", 1024, 768)
	assert.Contains(t, tool.GetDescription(), "1024 by 768 pixels")
	for _, kind := range []string{"", "custom", "web_search_20250305", "code_execution_20250825", "web_fetch_20250910", "computer_toolset_20260801", "tool_search_tool_regex_20251119", "bash_"} {
		_, ok := clienttool.Anthropic(kind, "n", 0, 0)
		assert.False(t, ok, kind)
	}
}

func TestTheComputerOfGeminisClients(t *testing.T) {
	t.Parallel()
	all := clienttool.Gemini(json.RawMessage(`{"environment":"ENVIRONMENT_BROWSER"}`))
	parameters := map[string][]string{}
	for _, tool := range all {
		parameters[tool.GetName()] = parametersOf(t, tool)
	}
	assert.Len(t, parameters, 13)
	assert.Equal(t, []string{"x", "y"}, parameters["click_at"])
	assert.Equal(t, []string{"clear_before_typing", "press_enter", "text", "x", "y"}, parameters["type_text_at"])
	assert.Equal(t, []string{"destination_x", "destination_y", "x", "y"}, parameters["drag_and_drop"])
	assert.Empty(t, parameters["go_back"])
	assert.Len(t, clienttool.Gemini(json.RawMessage(`{"excludedPredefinedFunctions":["drag_and_drop","search"]}`)), 11)
}
