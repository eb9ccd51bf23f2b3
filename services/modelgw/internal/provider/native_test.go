package provider_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func TestKindsOfToolsThatVendorsHave(t *testing.T) {
	t.Parallel()
	const editor = `{"type":"object","properties":{"command":{},"path":{},"file_text":{},"insert_line":{},"new_str":{},"old_str":{},"view_range":{}}}`
	for name, tt := range map[string]struct {
		tool *toolv1.ToolInfo
		want string
	}{
		"an editor, in any order":     {&toolv1.ToolInfo{Name: "text_editor", ParametersJson: editor}, provider.TextEditor},
		"an editor by another name":   {&toolv1.ToolInfo{Name: "editor", ParametersJson: editor}, ""},
		"an editor, not of an object": {&toolv1.ToolInfo{Name: "text_editor", ParametersJson: `[`}, ""},
		"a search":                    {&toolv1.ToolInfo{Name: "web_search", OptionsJson: `{"__internal_tool_type__":"web_search","v":{}}`}, provider.WebSearch},
		"a search of another":         {&toolv1.ToolInfo{Name: "web_search", OptionsJson: `{"__internal_tool_type__":"web_search","w":{}}`}, ""},
		"a search that is off":        {&toolv1.ToolInfo{Name: "web_search", OptionsJson: `{"__internal_tool_type__":"web_search","v":false}`}, ""},
		"code":                        {&toolv1.ToolInfo{Name: "code_execution", OptionsJson: `{"__internal_tool_type__":"code_execution","providers":{"v":true}}`}, provider.CodeExecution},
		"a server of tools":           {&toolv1.ToolInfo{Name: "mcp_server_x", OptionsJson: `{"name":"x"}`}, provider.MCPServer},
		"a name alone":                {&toolv1.ToolInfo{Name: "mcp_server_x"}, ""},
	} {
		assert.Equal(t, tt.want, provider.NativeTool(tt.tool, "v", "v"), name)
	}
}

// An error names the same member each time, whichever restrictions a client sets.
func TestTheFirstUnmetRestrictionIsNamed(t *testing.T) {
	t.Parallel()
	offer := hosted.Offer{Member: "tools.0", Restrictions: map[string]string{
		hosted.TimeRange: "timeRangeFilter", hosted.BlockedDomains: "excludeDomains", hosted.AllowedDomains: "domains",
	}}
	for range 50 {
		assert.Equal(t, "tools.0.excludeDomains", provider.Hosted{Restrictions: []string{hosted.AllowedDomains}}.Unmet(offer))
	}
	assert.Empty(t, provider.Hosted{Restrictions: []string{hosted.AllowedDomains, hosted.BlockedDomains, hosted.TimeRange}}.Unmet(offer))
}

func TestTheAddressOfAServerOfTools(t *testing.T) {
	t.Parallel()
	server, ok := provider.NewRemoteMCP(&toolv1.ToolInfo{OptionsJson: `{"name":"x","url":"u","headers":{"authorization":"bearer t"},"tools":"all"}`})
	assert.True(t, ok)
	assert.Equal(t, "t", server.Token())
	assert.Nil(t, server.Allowed())
	_, ok = provider.NewRemoteMCP(&toolv1.ToolInfo{OptionsJson: `{"name":"x"}`})
	assert.False(t, ok)
	assert.Equal(t, "plain", provider.RemoteMCP{Headers: map[string]string{"Authorization": "plain"}}.Token())
	assert.Equal(t, []string{"f"}, provider.RemoteMCP{Tools: []byte(`["f"]`)}.Allowed())
}
