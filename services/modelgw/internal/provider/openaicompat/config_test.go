package openaicompat_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
)

var update = flag.Bool("update", false, "write docs/model-services.md")

const page = "../../../../../docs/model-services.md"

// begin is what precedes the table of the page.
const begin = "# Services that speak OpenAI's formats\n\n" +
	"Each is a provider of its own: a model is `<service>/<model>`, by the name that the service gives it. A key and an\n" +
	"address are in `modelgw.services.<service>` of the configuration ([config.md](config.md)), with further accounts, or in\n" +
	"variables that are read when the server starts; of several variables the first one that is set counts.\n" +
	"`EVALFLEET_MODELGW_<SERVICE>_ALLOWED_BASE_URLS` lists further addresses that requests may name.\n\n" +
	"Any other server is `openai-api/<service>/<model>`, with an address and a key below `modelgw.openai_api.services`, or in\n" +
	"`<SERVICE>_BASE_URL` and `<SERVICE>_API_KEY`.\n\n" +
	"This page is written by `go test ./services/modelgw/internal/provider/openaicompat -run Page -update`.\n\n" +
	"| service | what it is | key | address | default |\n| --- | --- | --- | --- | --- |\n"

// The page for operators has every service of the table, with its variables.
func TestPage(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(begin)
	for _, s := range slices.SortedFunc(slices.Values(openaicompat.TheServices()), func(a, b openaicompat.Service) int { return cmp.Compare(a.Name, b.Name) }) {
		keys, addresses := s.Variables()
		key := code(keys)
		if s.Keyless {
			key += ", not needed"
		}
		if s.AccountIDEnv != "" {
			key += "; `account_id`: " + code([]string{s.AccountIDEnv})
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", s.Name, s.Description, key, code(addresses), cmp.Or(s.Address, "–"))
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(b.String()), 0o600))
	}
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, b.String(), string(written), "run the test with -update")
}

func code(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }

// configuration is the part of a gateway's configuration that is about services.
type configuration struct {
	OpenAIAPI openaicompat.Config   `yaml:"openai_api"`
	Services  openaicompat.Services `yaml:"services"`
}

// loaded is a configuration of a file and variables.
func loaded(t *testing.T, file string, env map[string]string) configuration {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	path := t.TempDir() + "/c.yaml"
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	var c configuration
	require.NoError(t, config.Load(t.Context(), &c, path, func(name string) (string, bool) { value, ok := env[name]; return value, ok }))
	require.NoError(t, c.Services.Validate())
	return c
}

// A pair of variables is a service; half a pair is none, so that no key goes to an address that nobody chose for it.
func TestServicesOfVariables(t *testing.T) {
	c := loaded(t, `openai_api: {services: {local: {base_url: "http://127.0.0.1:1/v1"}, kept: {api_key: k, base_url: "http://127.0.0.1:2/v1"}}}`, map[string]string{
		"ACME_AI_API_KEY": "k1", "ACME_AI_BASE_URL": "http://127.0.0.1:3/v1",
		"HALF_API_KEY": "k2", "OTHER_BASE_URL": "http://127.0.0.1:4/v1", "EMPTY_API_KEY": "", "EMPTY_BASE_URL": "http://127.0.0.1:5/v1",
		"LOCAL_API_KEY": "k3", "ODD_API_KEY": "k5", "ODD_BASE_URL": "redis.example:6379", "_API_KEY": "k4", "_BASE_URL": "http://127.0.0.1:6/v1",
	})
	want := map[string][2]string{
		"acme-ai": {"k1", "http://127.0.0.1:3/v1"}, "local": {"k3", "http://127.0.0.1:1/v1"}, "kept": {"k", "http://127.0.0.1:2/v1"},
	}
	got := map[string][2]string{}
	for name, account := range c.OpenAIAPI.Services {
		got[name] = [2]string{account.APIKey.Reveal(), account.BaseURL}
	}
	assert.Equal(t, want, got)
}

// Names that are not those of a service's variables make none: it would have neither the key nor the address.
func TestOddNamesOfVariables(t *testing.T) {
	c := loaded(t, "", map[string]string{
		"acme_API_KEY": "k1", "acme_BASE_URL": "http://127.0.0.1:1", "Acme_API_KEY": "k2", "Acme_BASE_URL": "http://127.0.0.1:2", "A-B_API_KEY": "k3", "A-B_BASE_URL": "http://127.0.0.1:3",
		"A/B_API_KEY": "k4", "A/B_BASE_URL": "http://127.0.0.1:4", "A.B_API_KEY": "k5", "A.B_BASE_URL": "http://127.0.0.1:5", "A1_API_KEY": "k6", "A1_BASE_URL": "http://127.0.0.1:6",
	})
	assert.Equal(t, []string{"a1"}, slices.Collect(maps.Keys(c.OpenAIAPI.Services)))
}

// Two services with the same variables would send the key of the one to the address of the other.
func TestServicesWithTheSameVariables(t *testing.T) {
	t.Parallel()
	c := openaicompat.Config{Services: map[string]provider.Account{"acme-ai": {}, "acme_ai": {}, "ACME-AI": {}, "acme": {}}}
	require.EqualError(t, c.Validate(), "services: ACME-AI, acme-ai, acme_ai have the same variables, ACME_AI_API_KEY and ACME_AI_BASE_URL; keep one of these names")
	delete(c.Services, "acme_ai")
	delete(c.Services, "ACME-AI")
	require.NoError(t, c.Validate())
}

// Known services have their variables, which replace what the file says.
func TestVariablesOfKnownServices(t *testing.T) {
	c := loaded(t, `services: {deepseek: {api_key: old, allowed_base_urls: ["http://127.0.0.1:1"], accounts: {spare: {api_key: s}}}, ollama: {}}`, map[string]string{
		"DEEPSEEK_API_KEY": "new", "CLOUDFLARE_API_TOKEN": "c", "CLOUDFLARE_ACCOUNT_ID": "a1", "LITELLM_PROXY_API_BASE": "http://127.0.0.1:2", "LITELLM_BASE_URL": "http://127.0.0.1:3",
		"HF_TOKEN": "h", "EVALFLEET_MODELGW_VLLM_ALLOWED_BASE_URLS": "http://127.0.0.1:4, http://127.0.0.1:5",
	})
	assert.Equal(t, "new", c.Services["deepseek"].APIKey.Reveal())
	assert.Equal(t, "s", c.Services["deepseek"].Accounts["spare"].APIKey.Reveal())
	assert.Equal(t, []string{"http://127.0.0.1:1"}, c.Services["deepseek"].AllowedBaseURLs)
	assert.Equal(t, "c", c.Services["cloudflare"].APIKey.Reveal())
	assert.Equal(t, "a1", c.Services["cloudflare"].AccountID)
	assert.Equal(t, "http://127.0.0.1:2", c.Services["litellm-proxy"].BaseURL)
	assert.Equal(t, "h", c.Services["hf-inference-providers"].APIKey.Reveal())
	assert.Equal(t, []string{"http://127.0.0.1:4", "http://127.0.0.1:5"}, c.Services["vllm"].AllowedBaseURLs)
	assert.NotContains(t, c.Services, "together", "it has neither a key nor an address")
}

func TestFaultsOfServices(t *testing.T) {
	t.Parallel()
	c := openaicompat.Services{
		"cloudfare": {}, "cloudflare": {Account: openaicompat.Account{AccountID: "../../x"}, Accounts: map[string]openaicompat.Account{"spare": {AccountID: "a/b"}}},
	}
	err := c.Validate()
	require.ErrorContains(t, err, "services.cloudfare: no such service; known are "+strings.Join(openaicompat.Names(), ", "))
	require.ErrorContains(t, err, `services.cloudflare: the account_id of the account "default"`)
	require.ErrorContains(t, err, `services.cloudflare: the account_id of the account "spare"`)
}

// What an account lacks is listed, and is why its models cannot be opened.
func TestWhatAnAccountLacks(t *testing.T) {
	t.Parallel()
	key := provider.Account{APIKey: config.NewSecret("k")}
	all := openaicompat.Services{
		"together": {}, "vllm": {}, "litellm-proxy": {Account: openaicompat.Account{Account: key}}, "cloudflare": {Account: openaicompat.Account{Account: key}},
		"deepseek": {Accounts: map[string]openaicompat.Account{"spare": {}}}, "ollama": {},
		"sglang": {Account: openaicompat.Account{Account: provider.Account{BaseURL: "http://127.0.0.1:1/v1"}}},
	}
	for service, want := range map[string]map[string]*modelv1.Account{
		"together":      {"default": {Problem: "set TOGETHER_API_KEY, or api_key in modelgw.services.together of the configuration", BaseUrl: "https://api.together.xyz/v1"}},
		"vllm":          {"default": {Problem: "evalfleet starts no server; run `vllm serve <model>` where it is to be, and set VLLM_BASE_URL, or base_url in modelgw.services.vllm of the configuration"}},
		"litellm-proxy": {"default": {Problem: "set LITELLM_PROXY_BASE_URL or LITELLM_PROXY_API_BASE or LITELLM_BASE_URL, or base_url in modelgw.services.litellm-proxy of the configuration"}},
		"cloudflare":    {"default": {Problem: "set CLOUDFLARE_ACCOUNT_ID, or account_id in modelgw.services.cloudflare of the configuration"}},
		"deepseek": {
			"default": {Problem: "set DEEPSEEK_API_KEY, or api_key in modelgw.services.deepseek of the configuration"},
			"spare":   {Problem: "set api_key in modelgw.services.deepseek.accounts.spare of the configuration"},
		},
		"ollama": {"default": {Usable: true, Keyless: true, BaseUrl: "http://localhost:11434/v1"}},
		"sglang": {"default": {Usable: true, Keyless: true, BaseUrl: "http://127.0.0.1:1/v1"}},
	} {
		kind := kindOf(t, service, all)
		assert.Len(t, kind.Accounts, len(want), service)
		for _, account := range kind.Accounts {
			expected := want[account.GetName()]
			assert.Equal(t, []any{expected.GetProblem(), expected.GetUsable(), expected.GetKeyless()}, []any{account.GetProblem(), account.GetUsable(), account.GetKeyless()}, service)
			if expected.GetBaseUrl() != "" {
				assert.Equal(t, expected.GetBaseUrl(), account.GetBaseUrl())
			}
			_, err := kind.Open(provider.Spec{Model: "m", Account: account.GetName()})
			if expected.GetUsable() {
				require.NoError(t, err, service)
				continue
			}
			assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED), "%s: %v", service, err)
			assert.ErrorContains(t, err, expected.GetProblem())
		}
	}
}

// A service of an account's own id is at the account's address, and the id of a request changes nothing.
func TestTheAddressOfAnAccountWithAnID(t *testing.T) {
	t.Parallel()
	account := openaicompat.Account{Account: provider.Account{APIKey: config.NewSecret("k")}, AccountID: "a1"}
	kind := kindOf(t, "cloudflare", openaicompat.Services{"cloudflare": {Account: account}})
	p, err := kind.Open(provider.Spec{Model: "@cf/m", Account: provider.DefaultAccount})
	require.NoError(t, err)
	assert.Equal(t, "https://api.cloudflare.com/client/v4/accounts/a1/ai/v1/chat/completions", p.Capabilities().Upstreams[0].URL)
	_, err = kind.Open(provider.Spec{Model: "@cf/m", Account: provider.DefaultAccount, BaseURL: "https://api.cloudflare.com/client/v4/accounts/b2/ai/v1"})
	require.ErrorContains(t, err, "allowed_base_urls")
	_, err = kind.Open(provider.Spec{Model: "@cf/m", Account: provider.DefaultAccount, Args: `{"account_id": "b2"}`})
	require.ErrorContains(t, err, "unknown argument")
}

// The key that is sent to a server that wants none is no secret, and an operator's own replaces it.
func TestTheKeyOfAServerThatWantsNone(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"": "Bearer ollama", "own": "Bearer own"} {
		account := openaicompat.Account{Account: provider.Account{APIKey: config.NewSecret(given), BaseURL: "http://127.0.0.1:1/v1"}}
		p, err := kindOf(t, "ollama", openaicompat.Services{"ollama": {Account: account}}).Open(provider.Spec{Model: "m", Account: provider.DefaultAccount})
		require.NoError(t, err)
		header := http.Header{}
		p.Capabilities().Upstreams[0].Authorize(header)
		assert.Equal(t, want, header.Get("Authorization"))
	}
}
