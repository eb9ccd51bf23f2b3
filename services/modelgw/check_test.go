package modelgw_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrockaccess"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openai"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
)

// lists is a vendor's list of models, and what it says of one by its name.
func lists(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodGet:
		http.Error(w, "a call costs", http.StatusTeapot)
	case r.URL.Path == "/open/models":
		_, _ = w.Write([]byte(`{"data":[{"id":"gpt-4o"}]}`))
	case r.Header.Get("Authorization") == "" && r.Header.Get("X-Api-Key") == "" && r.Header.Get("X-Goog-Api-Key") == "":
		http.Error(w, `{"error":{"message":"a key is missing"}}`, http.StatusUnauthorized)
	case r.Header.Get("Authorization") == "Bearer bad" || r.Header.Get("X-Api-Key") == "bad" || r.Header.Get("X-Goog-Api-Key") == "bad":
		http.Error(w, `{"error":{"message":"the key bad is wrong"}}`, http.StatusUnauthorized)
	case r.URL.Path == "/v1/models" || r.URL.Path == "/openai/v1/models":
		_, _ = w.Write([]byte(`{"data":[{"id":"gpt-4o"},{"id":"claude-opus-5"},{"id":"mistral-small-latest"}]}`))
	case r.URL.Path == "/v1beta/models":
		_, _ = w.Write([]byte(`{"models":[{"name":"models/gemini-2.5-pro"}]}`))
	case r.URL.Path == "/v1/models/gpt-alias":
		_, _ = w.Write([]byte(`{"id":"gpt-4o"}`))
	default:
		http.NotFound(w, r)
	}
}

// steps are the answers of a check by their questions.
func steps(check *modelv1.AccountCheck) map[string]string {
	all := map[string]string{}
	for _, s := range check.GetSteps() {
		all[s.GetName()] = s.GetResult().String()[len("ACCOUNT_CHECK_RESULT_"):]
	}
	return all
}

func TestChecksAskTheVendorsWithoutACall(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, lists)
	g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.OpenAI.Keys = []provider.Key{{APIKey: config.NewSecret("bad")}, {APIKey: config.NewSecret("third"), BaseURL: "http://127.0.0.1:1"}}
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), v.URL
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), v.URL
		c.Mistral.APIKey, c.Mistral.BaseURL = config.NewSecret("k"), v.URL
	})
	const proven, unproven, failed = "PROVEN", "UNPROVEN", "FAILED"
	all := map[string]string{"key": proven, "address": proven, "list": proven, "model": proven}
	for model, want := range map[string][]map[string]string{
		"openai/gpt-4o":    {all, {"key": proven, "address": proven, "list": failed}, {"key": proven, "address": failed}},
		"openai/gpt-4":     {{"key": proven, "address": proven, "list": proven, "model": failed}},
		"openai/gpt-alias": {all}, "anthropic/claude-opus-5": {all}, "google/gemini-2.5-pro": {all}, "mistral/mistral-small-latest": {all},
		"mockllm/model": {{"key": proven}}, "deepseek/deepseek-chat": {{"key": failed}},
	} {
		answer, err := g.models.CheckAccounts(t.Context(), &modelv1.CheckAccountsRequest{Model: model})
		require.NoError(t, err, model)
		for i, wanted := range want {
			check := answer.GetChecks()[i]
			assert.Equal(t, wanted, steps(check), "%s: %v", model, check)
			failedOne := false
			for _, result := range wanted {
				failedOne = failedOne || result == failed
			}
			assert.Equal(t, failedOne, check.GetFailed(), model)
			assert.NotContains(t, check.String(), "bad")
		}
	}
	answer, err := g.models.CheckAccounts(t.Context(), &modelv1.CheckAccountsRequest{})
	require.NoError(t, err)
	found := map[string]int{}
	for _, check := range answer.GetChecks() {
		found[check.GetProvider()]++
	}
	assert.Equal(t, 3, found["openai"])
	assert.Equal(t, 1, found["google"])
	assert.Zero(t, found["deepseek"], "what is not configured is left out")
	assert.Zero(t, found["ollama"], "also if it would need no key")
	_, err = g.models.CheckAccounts(t.Context(), &modelv1.CheckAccountsRequest{Model: "nobody/x"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND), err)
	for len(v.asked) > 0 {
		assert.Equal(t, http.MethodGet, (<-v.asked).Method)
		<-v.body
	}
}

// Groq's list is beside its chat completions, which are not at the usual place.
func TestAListBesideChatCompletionsElsewhereIsAsked(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, lists)
	g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
		account := openaicompat.Account{Account: provider.Account{APIKey: config.NewSecret("k"), BaseURL: v.URL}}
		c.Services = openaicompat.Services{"groq": {Account: account}, "azureai": {Account: account}}
	})
	for model, want := range map[string]map[string]string{
		"groq/gpt-4o":    {"key": "PROVEN", "address": "PROVEN", "list": "PROVEN", "model": "PROVEN"},
		"azureai/gpt-4o": {"key": "PROVEN", "address": "PROVEN", "list": "UNPROVEN"},
	} {
		answer, err := g.models.CheckAccounts(t.Context(), &modelv1.CheckAccountsRequest{Model: model})
		require.NoError(t, err)
		assert.Equal(t, want, steps(answer.GetChecks()[0]), model)
	}
}

// OpenRouter's list, for one, is open to all: it says nothing of a key.
func TestAListThatNeedsNoKeyProvesNone(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, lists)
	g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Services = openaicompat.Services{
			"openrouter": {Account: openaicompat.Account{Account: provider.Account{APIKey: config.NewSecret("bad"), BaseURL: v.URL + "/open"}}},
			"ollama":     {Account: openaicompat.Account{Account: provider.Account{BaseURL: v.URL + "/open"}}},
		}
	})
	for model, want := range map[string]map[string]string{
		"openrouter/gpt-4o": {"key": "PROVEN", "address": "PROVEN", "list": "UNPROVEN", "model": "PROVEN"},
		"ollama/gpt-4o":     {"key": "PROVEN", "address": "PROVEN", "list": "PROVEN", "model": "PROVEN"},
	} {
		answer, err := g.models.CheckAccounts(t.Context(), &modelv1.CheckAccountsRequest{Model: model})
		require.NoError(t, err)
		assert.Equal(t, want, steps(answer.GetChecks()[0]), "%s: %v", model, answer)
		assert.False(t, answer.GetChecks()[0].GetFailed())
	}
}

// A model that is not listed is named, with a known one that it resembles, if there is any.
func TestACheckNamesAModelThatIsNotListed(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, vendorWith(t, lists))
	for model, want := range map[string]string{
		"openai/gpt-4": "gpt-4 is not listed; did you mean gpt-4o?", "openai/llama-small": "llama-small is not listed",
	} {
		answer, err := g.models.CheckAccounts(t.Context(), &modelv1.CheckAccountsRequest{Model: model})
		require.NoError(t, err)
		all := answer.GetChecks()[0].GetSteps()
		assert.Equal(t, want, all[len(all)-1].GetDetail())
	}
}

// A model in a cloud is checked with the accounts there.
func TestAModelInACloudIsCheckedWithTheAccountsThere(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, lists)
	g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.OpenAI.Azure.APIKey, c.OpenAI.Azure.BaseURL = config.NewSecret("k"), v.URL
		c.OpenAI.Azure.Accounts = map[string]azureauth.Account{"eu": {Account: provider.Account{BaseURL: v.URL}}}
		c.OpenAI.Accounts = map[string]openai.Account{"team": {}}
	})
	answer, err := g.models.CheckAccounts(t.Context(), &modelv1.CheckAccountsRequest{Model: "openai/azure/gpt-4o"})
	require.NoError(t, err)
	found := map[string]map[string]string{}
	for _, check := range answer.GetChecks() {
		found[check.GetAccount()] = steps(check)
	}
	assert.Equal(t, map[string]map[string]string{
		"default": {"key": "PROVEN", "address": "PROVEN", "list": "UNPROVEN"}, "eu": {"key": "FAILED"},
	}, found)
}

// Whether a cloud gives credentials is not known before one is needed; keys that are configured are known.
func TestCredentialsThatACloudMayGiveAreNotProven(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, lists)
	g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Bedrock.BaseURL, c.Bedrock.Region = v.URL, "us-east-1"
		c.Bedrock.Accounts = map[string]bedrockaccess.Account{"own": {BaseURL: v.URL}}
		own := c.Bedrock.Accounts["own"]
		own.AccessKeyID, own.SecretAccessKey, own.Region = config.NewSecret("a"), config.NewSecret("b"), "us-east-1"
		c.Bedrock.Accounts["own"] = own
	})
	answer, err := g.models.CheckAccounts(t.Context(), &modelv1.CheckAccountsRequest{Provider: "bedrock"})
	require.NoError(t, err)
	found := map[string]map[string]string{}
	for _, check := range answer.GetChecks() {
		found[check.GetAccount()] = steps(check)
	}
	assert.Equal(t, map[string]map[string]string{
		"default": {"key": "UNPROVEN", "address": "PROVEN", "list": "UNPROVEN"}, "own": {"key": "PROVEN", "address": "PROVEN", "list": "UNPROVEN"},
	}, found)
	known, err := g.models.ListProviders(t.Context(), &modelv1.ListProvidersRequest{})
	require.NoError(t, err)
	keys := map[string]int32{}
	for _, kind := range known.GetProviders() {
		for _, account := range kind.GetAccounts() {
			if kind.GetName() == "bedrock" {
				keys[account.GetName()] = account.GetKeys()
			}
		}
	}
	assert.Equal(t, map[string]int32{"default": 0, "own": 1}, keys)
}

// A key with an address of its own is checked there, also where the vendor has no list.
func TestAKeyIsCheckedAtItsOwnAddress(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, lists)
	g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Grok.APIKey, c.Grok.BaseURL = config.NewSecret("k"), v.URL
		c.Grok.Keys = []provider.Key{{APIKey: config.NewSecret("second"), BaseURL: "http://127.0.0.1:1"}, {APIKey: config.NewSecret("third")}}
	})
	answer, err := g.models.CheckAccounts(t.Context(), &modelv1.CheckAccountsRequest{Model: "grok/grok-4"})
	require.NoError(t, err)
	require.Len(t, answer.GetChecks(), 3)
	for i, want := range []string{"PROVEN", "FAILED", "PROVEN"} {
		assert.Equal(t, want, steps(answer.GetChecks()[i])["address"], "%v", answer.GetChecks()[i])
	}
	assert.Equal(t, "http://127.0.0.1:1", answer.GetChecks()[1].GetBaseUrl())
}

// A vendor behind a proxy cannot be connected to; its list proves it all the same.
func TestAVendorBehindAProxyIsChecked(t *testing.T) {
	proxy := vendorWith(t, lists)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("NO_PROXY", "")
	g := start(t, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.OpenAI.APIKey, c.OpenAI.BaseURL = config.NewSecret("k"), "http://vendor.example/v1"
	})
	answer, err := g.models.CheckAccounts(t.Context(), &modelv1.CheckAccountsRequest{Model: "openai/gpt-4o"})
	require.NoError(t, err)
	check := answer.GetChecks()[0]
	assert.Equal(t, map[string]string{"key": "PROVEN", "address": "UNPROVEN", "list": "PROVEN", "model": "PROVEN"}, steps(check))
	assert.Contains(t, check.GetSteps()[1].GetDetail(), "through the proxy "+strings.TrimPrefix(proxy.URL, "http://"))
}

// A vendor that is overloaded has not said that it has no list.
func TestACheckSaysThatAListIsNotThereNow(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, vendorWith(t, says(http.StatusServiceUnavailable, "application/json", `{}`)))
	answer, err := g.models.CheckAccounts(t.Context(), &modelv1.CheckAccountsRequest{Model: "openai/gpt-4o"})
	require.NoError(t, err)
	list := answer.GetChecks()[0].GetSteps()[2]
	assert.Equal(t, modelv1.AccountCheckResult_ACCOUNT_CHECK_RESULT_UNPROVEN, list.GetResult())
	assert.Contains(t, list.GetDetail(), "not to be had now (status 503)")
}

func TestFactsOfTheConfigurationReplaceBuiltInOnes(t *testing.T) {
	t.Parallel()
	g := start(t, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Models = map[string]modeldata.Facts{
			"openai/gpt-4o":        {Context: 1000},
			"vllm/our-tune":        {Family: "openai/gpt-4o", Display: "Our tune", Output: 77},
			"openai-api/x/unknown": {Organization: "Us", Reasoning: new(true)},
		}
	})
	describe := func(name string) *modelv1.Model {
		m, err := g.models.GetModel(t.Context(), &modelv1.GetModelRequest{Name: name})
		require.NoError(t, err)
		return m
	}
	m := describe("providers/openai/models/gpt-4o")
	assert.Equal(t, int64(1000), m.GetContextTokens())
	assert.Equal(t, "OpenAI", m.GetOrganization())
	assert.Regexp(t, `^configuration \(context\); the rest: .+, as of `, m.GetFactsSource())
	m = describe("providers/openai/models/gpt-4o-2024-05-13")
	assert.NotEqual(t, int64(1000), m.GetContextTokens(), "a fact holds for the name letter for letter")
	assert.NotContains(t, m.GetFactsSource(), "configuration")
	m = describe("providers/vllm/models/our-tune")
	assert.Equal(t, "Our tune", m.GetDisplayName())
	assert.Equal(t, int64(128_000), m.GetContextTokens())
	assert.Equal(t, int64(77), m.GetOutputTokens())
	assert.Contains(t, m.GetFactsSource(), "configuration (display, family, output)")
	assert.Nil(t, m.GetPrices(), "a price is never that of a family")
}

func TestFaultsOfFactsAreNamed(t *testing.T) {
	t.Parallel()
	var c modelgw.Config
	c.SetDefaults()
	c.Models = map[string]modeldata.Facts{"openai/x": {Context: -1, Released: "soon", Family: "nothing/known"}, "x": {}}
	err := c.Validate()
	for _, said := range []string{"models.openai/x.context: must be", `"soon" is no day`, "family:", `"x" is not of the form`} {
		assert.ErrorContains(t, err, said)
	}
}
