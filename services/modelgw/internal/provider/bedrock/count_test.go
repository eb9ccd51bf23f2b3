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

const (
	// account begins the ARNs of an account.
	account = "arn:aws:bedrock:us-east-1:123456789012:"
	invalid = "ValidationException"
)

func TestTokensAreCountedByTheModelOfAProfile(t *testing.T) {
	t.Parallel()
	const haiku = "anthropic.claude-haiku-4-5-20251001-v1:0"
	for id, asked := range map[string]string{
		"us.anthropic.claude-sonnet-4-5-20250929-v1:0":         "anthropic.claude-sonnet-4-5-20250929-v1:0",
		"us-gov.anthropic.claude-3-haiku-20240307-v1:0":        "anthropic.claude-3-haiku-20240307-v1:0",
		"amazon.nova-pro-v1:0":                                 "amazon.nova-pro-v1:0",
		account + "inference-profile/global." + haiku:          haiku,
		"arn:aws:bedrock:us-east-1::foundation-model/" + haiku: haiku,
	} {
		url := serving(t, func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "/model/"+asked+"/count-tokens", r.URL.Path)
			assert.NotEmpty(t, r.Header.Get("Authorization"))
			body, _ := io.ReadAll(r.Body)
			sent := strings.ReplaceAll(string(body), `,{"cachePoint":{"type":"default"}}`, "")
			assert.JSONEq(t, `{"input":{"converse":{"messages":[{"role":"user","content":[{"text":"q"}]}],
				"toolConfig":{"tools":[{"toolSpec":
				{"name":"f","description":"d","inputSchema":{"json":{"type":"object"}}}}]}}}}`, sent)
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
	none := provider.ErrCountsNone.Error()
	for name, test := range map[string]struct {
		model         string
		status        int
		kind, message string
		asked         int32
		want          string
	}{
		"a model that is not counted": {
			claude45, 400, invalid, "The provided model doesn't support counting tokens.", 1, none,
		},
		"a right": {
			claude45, 403, "AccessDeniedException", "not authorized: bedrock:CountTokens", 1, none,
		},
		"no route": {
			claude45, 404, "UnknownOperationException", "", 1, none,
		},
		"a conversation": {
			claude45, 400, invalid, "A conversation must start with a user message.", 2, "must start",
		},
		"a model there by profiles": {
			"eu." + claude45, 400, invalid, "The provided model identifier is invalid.", 1, none,
		},
		"an unknown model": {
			claude45, 400, invalid, "The provided model identifier is invalid.", 2, "identifier",
		},
		"a model that is gone": {
			claude45, 404, "ResourceNotFoundException", "It has reached its end of life.", 2, "end of life",
		},
		"a name that says no model": {
			account + "application-inference-profile/abc", 500, "", "", 0, none,
		},
		"throttled": {
			claude45, 429, "ThrottlingException", "Slow down.", 2, "Slow down",
		},
		"an answer that is none": {
			claude45, 200, "", "", 2, "Converse",
		},
	} {
		var asked atomic.Int32
		serve := refusing(test.status, test.kind, `{"message":"`+test.message+`"}`)
		p := opened(t, test.model, serving(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			serve(w, r)
		})).(provider.TokenCounter)
		for range 2 {
			_, err := p.CountTokens(t.Context(), asking("q"))
			require.ErrorContains(t, err, test.want, name)
		}
		assert.Equal(t, test.asked, asked.Load(), name)
	}
}
