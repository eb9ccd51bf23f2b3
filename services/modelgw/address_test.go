package modelgw_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/modelgw"
)

func TestABaseURLThatLeadsBackIsRefused(t *testing.T) {
	t.Parallel()
	for base, own := range map[string]string{
		"http://127.0.0.1:7460/v1":                 "127.0.0.1:7460",
		"http://localhost:7460/v1":                 "127.0.0.1:7460",
		"http://[::1]:7460":                        "0.0.0.0:7460",
		"http://evals.example.com/v1":              "evals.example.com:80",
		"http://ada:pass-word@127.0.0.1:7460/v1?x": "127.0.0.1:7460",
	} {
		c := modelgw.Config{}
		c.OpenAI.BaseURL = base
		err := c.RefuseOwn("127.0.0.1:1", own)
		require.ErrorContains(t, err, "OPENAI_BASE_URL", base)
		assert.ErrorContains(t, err, "evalfleet's own endpoint at "+own)
		assert.NotContains(t, err.Error(), "pass-word")
	}
	for base, own := range map[string]string{
		"":                         "127.0.0.1:7460",
		"http://127.0.0.1:8000/v1": "127.0.0.1:7460",
		"http://10.0.0.7:7460/v1":  "127.0.0.1:7460",
		"https://api.openai.com":   "127.0.0.1:443",
	} {
		c := modelgw.Config{}
		c.Anthropic.BaseURL = base
		require.NoError(t, c.RefuseOwn(own), base)
	}
}
