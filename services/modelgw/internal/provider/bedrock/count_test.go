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
		"arn:aws:bedrock:us-east-1:123456789012:inference-profile/global.anthropic.claude-haiku-4-5-20251001-v1:0": "anthropic.claude-haiku-4-5-20251001-v1:0",
		"arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-haiku-4-5-20251001-v1:0":                     "anthropic.claude-haiku-4-5-20251001-v1:0",
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
		model string
		serve http.HandlerFunc
		asked int32
		want  string
	}{
		"a model that is not counted": {claude45, refusing(400, "ValidationException", `{"message":"The provided model doesn't support counting tokens."}`), 1, provider.ErrCountsNone.Error()},
		"a right":                     {claude45, refusing(403, "AccessDeniedException", `{"message":"not authorized to perform: bedrock:CountTokens"}`), 1, provider.ErrCountsNone.Error()},
		"no route":                    {claude45, refusing(404, "UnknownOperationException", `{}`), 1, provider.ErrCountsNone.Error()},
		"a conversation":              {claude45, refusing(400, "ValidationException", `{"message":"A conversation must start with a user message."}`), 2, "must start"},
		"a profile's model that is only there by profiles": {"eu." + claude45, refusing(400, "ValidationException", `{"message":"The provided model identifier is invalid."}`), 1, provider.ErrCountsNone.Error()},
		"an unknown model":          {claude45, refusing(400, "ValidationException", `{"message":"The provided model identifier is invalid."}`), 2, "identifier"},
		"a model that is gone":      {claude45, refusing(404, "ResourceNotFoundException", `{"message":"This model version has reached the end of its life."}`), 2, "end of its life"},
		"a name that says no model": {"arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc", refusing(500, "", ``), 0, provider.ErrCountsNone.Error()},
		"throttled":                 {claude45, refusing(429, "ThrottlingException", `{"message":"Slow down."}`), 2, "Slow down"},
		"an answer that is none":    {claude45, refusing(200, "", `{}`), 2, "Converse"},
	} {
		var asked atomic.Int32
		p := opened(t, test.model, serving(t, func(w http.ResponseWriter, r *http.Request) {
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
