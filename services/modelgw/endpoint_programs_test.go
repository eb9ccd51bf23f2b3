package modelgw_test

import (
	"cmp"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// testdata/programs has the second requests of coding agents, after a command ran, as these programs send them: Claude
// Code 2.1.332, Codex 0.171.0 with a name that it does not know and with one that it knows (codex-lite), and Gemini CLI
// 0.61.0. Their words are cut, and some of their tools left out.
func TestCodingAgentsTalkToAnyModel(t *testing.T) {
	t.Parallel()
	for program, sent := range map[string]struct{ path, tool string }{
		"claude-code": {messagesPath + "?beta=true", "Bash"},
		"codex":       {responsesPath, "exec_command"},
		"codex-lite":  {responsesPath, "exec"},
		"gemini-cli":  {"", "run_shell_command"},
	} {
		request, err := os.ReadFile(filepath.Join("testdata", "programs", program+".json"))
		require.NoError(t, err)
		for model, server := range map[string]func(testing.TB, ...providertest.Answer) string{
			claudeModel:                    providertest.MessageServer,
			"anthropic/claude-opus-5":      providertest.MessageServer,
			geminiModel:                    providertest.GeminiServer,
			"openai/gpt-4o":                providertest.ChatServer,
			"openai/o4-mini":               providertest.ChatServer,
			gptModel:                       providertest.ResponsesServer,
			"mistral/mistral-large-latest": providertest.ConversationsServer,
		} {
			t.Run(program+" with "+model, func(t *testing.T) {
				t.Parallel()
				v := behind(t, server(t, providertest.Answer{Text: "The file is written."}))
				g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
					c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), v.URL
					c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), v.URL
					c.Mistral.APIKey, c.Mistral.BaseURL = config.NewSecret("k"), v.URL
					c.OpenAI.ResponsesAPI = new(model == gptModel)
				})
				path := cmp.Or(sent.path, geminiPath+model+":streamGenerateContent?alt=sse")
				body := strings.Replace(string(request), `"MODEL"`, `"`+model+`","stream":true`, 1)
				got := g.post(t, path, body)
				require.Equal(t, http.StatusOK, got.StatusCode)
				assert.NotContains(t, read(t, got), `"error":{`)
				asked := string(waittest.For(t, v.body, "the request"))
				assert.Contains(t, asked, `"`+sent.tool+`"`, "the tools are on offer")
				assert.Contains(t, asked, "proof-42", "the conversation is whole")
			})
		}
	}
}
