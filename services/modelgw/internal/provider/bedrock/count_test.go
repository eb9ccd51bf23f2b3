package bedrock_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func TestTokensAreCountedByTheModelOfAProfile(t *testing.T) {
	t.Parallel()
	for id, asked := range map[string]string{
		"us.anthropic.claude-sonnet-4-5-20250929-v1:0":  "anthropic.claude-sonnet-4-5-20250929-v1:0",
		"us-gov.anthropic.claude-3-haiku-20240307-v1:0": "anthropic.claude-3-haiku-20240307-v1:0",
		"amazon.nova-pro-v1:0":                          "amazon.nova-pro-v1:0",
	} {
		url := serving(t, func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "/model/"+asked+"/count-tokens", r.URL.Path)
			assert.NotEmpty(t, r.Header.Get("Authorization"))
			body, _ := io.ReadAll(r.Body)
			assert.JSONEq(t, `{"input":{"converse":{"messages":[{"role":"user","content":[{"text":"q"}]}],
				"toolConfig":{"tools":[{"toolSpec":{"name":"f","description":"d","inputSchema":{"json":{"type":"object"}}}}]}}}}`, strings.ReplaceAll(string(body), `,{"cachePoint":{"type":"default"}}`, ""))
			_, _ = io.WriteString(w, `{"inputTokens":7}`)
		})
		r := asking("q")
		r.Tools = []*toolv1.ToolInfo{{Name: "f", Description: "d", ParametersJson: `{"type":"object"}`}}
		tokens, err := opened(t, id, url).(provider.TokenCounter).CountTokens(t.Context(), r)
		require.NoError(t, err)
		assert.EqualValues(t, 7, tokens)
	}
}

func TestWhatCountsNoTokensIsAskedOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		serve http.HandlerFunc
		asked int32
		want  string
	}{
		"a model that is not counted": {refusing(400, "ValidationException", `{"message":"The provided model doesn't support counting tokens."}`), 1, provider.ErrCountsNone.Error()},
		"a right":                     {refusing(403, "AccessDeniedException", `{"message":"not authorized to perform: bedrock:CountTokens"}`), 1, provider.ErrCountsNone.Error()},
		"no route":                    {refusing(404, "UnknownOperationException", `{}`), 1, provider.ErrCountsNone.Error()},
		"a conversation":              {refusing(400, "ValidationException", `{"message":"A conversation must start with a user message."}`), 2, "must start"},
		"throttled":                   {refusing(429, "ThrottlingException", `{"message":"Slow down."}`), 2, "Slow down"},
		"an answer that is none":      {refusing(200, "", `{}`), 2, "Converse"},
	} {
		var asked atomic.Int32
		p := opened(t, claude45, serving(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			test.serve(w, r)
		})).(provider.TokenCounter)
		for range 2 {
			_, err := p.CountTokens(t.Context(), asking("q"))
			require.ErrorContains(t, err, test.want, name)
		}
		assert.Equal(t, test.asked, asked.Load(), name)
	}
}
