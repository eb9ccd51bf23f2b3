package modelgw

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// A server of one's own would fetch an address from within the network.
func TestOnlyAVendorsOwnServersFetch(t *testing.T) {
	t.Parallel()
	var c Config
	c.SetDefaults()
	key := config.NewSecret("a key of the account")
	c.OpenAI.APIKey, c.Anthropic.APIKey, c.Mistral.APIKey, c.Google.APIKey = key, key, key, key
	allowed := []string{"http://127.0.0.1:8000"}
	c.OpenAI.AllowedBaseURLs, c.Anthropic.AllowedBaseURLs, c.Mistral.AllowedBaseURLs = allowed, allowed, allowed
	chat := &modelv1.GenerateConfig{NumChoices: new(int32(2))} // which the Responses API does not have
	for _, tt := range []struct {
		model, at string
		config    *modelv1.GenerateConfig
		want      provider.Fetches
	}{
		{"openai/gpt-5", "", nil, provider.Fetches{Images: true, Documents: true}},
		{"openai/gpt-4o", "", chat, provider.Fetches{Images: true}},
		{"openai/gpt-4o", allowed[0], nil, provider.Fetches{}},
		{"anthropic/claude-sonnet-4-5", "", nil, provider.Fetches{Images: true, Documents: true}},
		{"anthropic/claude-sonnet-4-5", allowed[0], nil, provider.Fetches{}},
		{"mistral/mistral-large-latest", "", nil, provider.Fetches{Images: true, Documents: true}},
		{"mistral/mistral-large-latest", allowed[0], nil, provider.Fetches{}},
		{"google/gemini-2.5-flash", "", nil, provider.Fetches{}},
	} {
		kind, name, _ := provider.SplitName(tt.model)
		for _, v := range vendors {
			if v.name != kind {
				continue
			}
			k, closes, err := v.kind(&c, &Deps{})
			require.NoError(t, err)
			m, err := k.Open(provider.Spec{Project: "default", Model: name, Account: provider.DefaultAccount, BaseURL: tt.at})
			require.NoError(t, err, tt.model)
			assert.Equal(t, tt.want, provider.CapabilitiesOf(m, tt.config).Fetches, "%s %s", tt.model, tt.at)
			require.NoError(t, m.Close())
			require.NoError(t, closes())
		}
	}
}
