package modelgw_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrockaccess"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/vertexaccess"
)

// The accounts of models in clouds are listed with their service, and what they lack is said.
func TestAccountsInCloudsAreListed(t *testing.T) {
	t.Parallel()
	g := start(t, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Mistral.Azure.APIKey, c.Mistral.Azure.BaseURL = config.NewSecret("k"), "https://mistral.example"
		c.OpenAI.Azure.APIKey = config.NewSecret("k")
		c.Anthropic.Bedrock.Accounts = map[string]bedrockaccess.Account{"eu": {Account: awsauth.Account{Region: "eu-west-1"}}}
		c.Google.Vertex.Project, c.Google.Vertex.Location = "p", "us-east5"
		c.Anthropic.Vertex.Accounts = map[string]vertexaccess.Account{"half": {Project: "p"}}
	})
	providers, err := g.models.ListProviders(t.Context(), &modelv1.ListProvidersRequest{})
	require.NoError(t, err)
	all := map[string]string{}
	for _, p := range providers.GetProviders() {
		for _, a := range p.GetAccounts() {
			if a.GetService() != "" {
				all[p.GetName()+"/"+a.GetService()+" "+a.GetName()] = a.GetBaseUrl() + " " + a.GetProblem()
			}
		}
	}
	for name, want := range map[string]string{
		"mistral/azure default":     "https://mistral.example ",
		"openai/azure default":      " set base_url, the address of the deployment",
		"anthropic/bedrock eu":      "https://bedrock-runtime.eu-west-1.amazonaws.com ",
		"google/vertex default":     "https://us-east5-aiplatform.googleapis.com ",
		"anthropic/azure default":   " set AZUREAI_ANTHROPIC_API_KEY",
		"anthropic/vertex half":     "https://aiplatform.googleapis.com/v1 set ",
		"anthropic/bedrock default": " set ",
	} {
		assert.Contains(t, all[name], want, name)
	}
}
