package google_test

import (
	"io"
	"net/http"
	"net/http/httptest"
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
	var sent string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = string(body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`)
	}))
	defer server.Close()
	onVertex, err := openOf(t, vertexAt(t, server.URL), provider.Spec{Model: "vertex/gemini-2.5-flash"})
	require.NoError(t, err)
	gemini := opened(t, "gemini-2.5-flash", server.URL)
	const months = `{"start_time":"2024-01-01T00:00:00Z","end_time":"2024-02-01T00:00:00Z"}`
	for _, tt := range []struct {
		name, options string
		model         provider.Provider
		want          string // empty: refused
	}{
		{"none", `true`, gemini, `"tools":[{"googleSearch":{}}]`},
		{"a time", `{"time_range_filter":` + months + `}`, gemini, `"tools":[{"googleSearch":{"timeRangeFilter":` + months + `}}]`},
		{"a time on Vertex AI", `{"time_range_filter":` + months + `}`, onVertex, ""},
		{"domains", `{"exclude_domains":["a.example"]}`, gemini, ""},
		{"domains on Vertex AI", `{"exclude_domains":["a.example"]}`, onVertex, `"tools":[{"googleSearch":{"excludeDomains":["a.example"]}}]`},
		{"an unknown one", `{"deep":true}`, gemini, ""},
	} {
		sent = ""
		_, err := tt.model.Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}, ToolChoice: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO),
			Tools: []*toolv1.ToolInfo{{Name: "web_search", OptionsJson: `{"__internal_tool_type__":"web_search","gemini":` + tt.options + `}`}},
		})
		if tt.want == "" {
			require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), "%s: %v", tt.name, err)
			assert.Empty(t, sent, tt.name)
			continue
		}
		require.NoError(t, err, tt.name)
		assert.Contains(t, sent, tt.want, tt.name)
	}
}
