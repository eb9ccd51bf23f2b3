package google_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// An option of Google's search is sent where its server has it, and refused elsewhere: a search without it would find
// what it should not.
func TestOptionsOfTheSearchAreSentOrRefused(t *testing.T) {
	t.Parallel()
	address, sent := keeps(t)
	onVertex, err := openOf(t, vertexAt(t, address), provider.Spec{Model: "vertex/gemini-2.5-flash"})
	require.NoError(t, err)
	gemini := opened(t, "gemini-2.5-flash", address)
	const months = `{"start_time":"2024-01-01T00:00:00Z","end_time":"2024-02-01T00:00:00Z"}`
	for _, tt := range []struct {
		name, options string
		model         provider.Provider
		want          string // empty: refused
	}{
		{"none", `true`, gemini, `"tools":[{"googleSearch":{}}]`},
		{"a time", `{"time_range_filter":` + months + `}`, gemini, `"tools":[{"googleSearch":{"timeRangeFilter":` + months + `}}]`},
		{"a time by the name of its member", `{"timeRangeFilter":` + months + `}`, gemini, `"tools":[{"googleSearch":{"timeRangeFilter":` + months + `}}]`},
		{"kinds", `{"search_types":{"web_search":{}}}`, gemini, `"tools":[{"googleSearch":{"searchTypes":{"web_search":{}}}}]`},
		{"kinds on Vertex AI", `{"search_types":{"web_search":{}}}`, onVertex, ""},
		{"domains that are not set", `{"exclude_domains":null}`, gemini, `"tools":[{"googleSearch":{}}]`},
		{"a time on Vertex AI", `{"time_range_filter":` + months + `}`, onVertex, ""},
		{"domains", `{"exclude_domains":["a.example"]}`, gemini, ""},
		{"domains on Vertex AI", `{"exclude_domains":["a.example"]}`, onVertex, `"tools":[{"googleSearch":{"excludeDomains":["a.example"]}}]`},
		{"an unknown one", `{"deep":true}`, gemini, ""},
	} {
		*sent = ""
		_, err := tt.model.Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}, ToolChoice: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO),
			Tools: []*toolv1.ToolInfo{{Name: "web_search", OptionsJson: `{"__internal_tool_type__":"web_search","gemini":` + tt.options + `}`}},
		})
		if tt.want == "" {
			require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), "%s: %v", tt.name, err)
			assert.Empty(t, *sent, tt.name)
			continue
		}
		require.NoError(t, err, tt.name)
		assert.Contains(t, *sent, tt.want, tt.name)
	}
}
