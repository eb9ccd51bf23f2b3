package openaicompat_test

import (
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// kindOf returns the provider of a known service with these accounts.
func kindOf(t testing.TB, name string, c openaicompat.Services) provider.Kind {
	t.Helper()
	kinds, closeIdle := openaicompat.Kinds(c)
	t.Cleanup(func() { _ = closeIdle() })
	i := slices.IndexFunc(kinds, func(k provider.Kind) bool { return k.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return kinds[i]
}

// serviceOf configures a service as a recorded case has it.
func serviceOf(name string) func(testing.TB, providertest.GoldenSetup) provider.Kind {
	return func(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
		t.Helper()
		var c struct {
			Services openaicompat.Services `yaml:"services"`
		}
		var key config.Secret
		var address string
		setup.Load(t, &c, &key, &address)
		if c.Services == nil {
			c.Services = openaicompat.Services{}
		}
		service := c.Services[name]
		if !key.IsZero() {
			service.APIKey = key
		}
		if address != "" {
			service.BaseURL = address
		}
		c.Services[name] = service
		return kindOf(t, name, c.Services)
	}
}

// Not every service has recorded cases. The table of `make golden` lists those that no test runs.
func TestGoldenServices(t *testing.T) {
	t.Parallel()
	for _, name := range openaicompat.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, theme := range []string{"request", "response"} {
				cases := "providers/" + theme + "/" + name + "/*.json"
				if files, err := fs.Glob(os.DirFS(goldentest.Root(t)), cases); err != nil || len(files) > 0 {
					providertest.Golden(t, theme, []string{cases}, serviceOf(name))
				}
			}
		})
	}
}

// models are names of each service's models that its table distinguishes.
var models = map[string][]string{
	"azureai":    {"phi-4", "org/mistral-large"},
	"cloudflare": {"@cf/meta/llama-3.1-8b-instruct"}, "deepseek": {"deepseek-chat"}, "fireworks": {"accounts/fireworks/models/kimi-k2", "accounts/fireworks/models/gpt-oss-120b"},
	"moonshot": {"kimi-k2.5", "kimi-k3", "moonshot-v1-8k"}, "openrouter": {"acme/river-7b", "anthropic/claude-sonnet-4.5", "deepseek/deepseek-v4-pro"}, "together": {"meta-llama/Llama-3.3-70B", "openai/gpt-oss-20b"},
}

// openAt opens a model of a service at an address.
func openAt(t testing.TB, service, model, address, args string) provider.Provider {
	t.Helper()
	account := openaicompat.Account{Account: provider.Account{APIKey: config.NewSecret("k"), BaseURL: address}, AccountID: "a1"}
	kind := kindOf(t, service, openaicompat.Services{service: {Account: account}})
	p, err := kind.Open(provider.Spec{Model: model, Account: provider.DefaultAccount, Args: args})
	require.NoError(t, err)
	return p
}

// each runs a test for every service, and for every model that its table distinguishes.
func each(t *testing.T, test func(t *testing.T, service, model string)) {
	t.Helper()
	for _, service := range openaicompat.Names() {
		names := models[service]
		if names == nil {
			names = []string{"acme/river-7b"}
		}
		for _, model := range names {
			t.Run(service+"/"+model, func(t *testing.T) {
				t.Parallel()
				test(t, service, model)
			})
		}
	}
}

// formats are servers of both formats, by the model argument that selects it; without one it is the service's.
var formats = map[string]func(testing.TB, ...providertest.Answer) string{
	`{"responses_api": false}`: providertest.ChatServer, `{"responses_api": true}`: providertest.ResponsesServer,
}

// busy reports whether a service asks to slow down with the status 503 too.
func busy(service string) bool {
	return slices.ContainsFunc(openaicompat.TheServices(), func(s openaicompat.Service) bool {
		return s.Name == service && slices.Contains(s.Busy, http.StatusServiceUnavailable)
	})
}

// lacks reports whether a service has only the other format than the arguments ask for.
func lacks(service, args string) bool {
	if strings.Contains(args, `"responses_api": true`) {
		return service == "azureai" || service == "groq"
	}
	return service == "perplexity" && strings.Contains(args, `"responses_api": false`)
}

func TestServicesPassTheSuite(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, service, model string) {
		for args, serve := range formats {
			if lacks(service, args) {
				continue
			}
			providertest.Run(t, providertest.Harness{NoTools: service == "perplexity", Busy: busy(service), New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
				return openAt(t, service, model, serve(t, answers...), args)
			}})
		}
	})
}

// No option of a configuration is passed over without a word.
func TestEveryOptionOfEveryServiceIsSentOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, service, model string) {
		if service == "perplexity" {
			providertest.OptionsWithoutTools(t, func(t *testing.T, root string) provider.Provider { return openAt(t, service, model, root+"/v1", "") })
			return
		}
		for _, args := range []string{"", `{"responses_api": true}`, `{"responses_api": false}`, `{"responses_api": true, "responses_store": true}`, `{"responses_api": false, "emulate_tools": true}`} {
			if !lacks(service, args) {
				providertest.Options(t, func(t *testing.T, root string) provider.Provider { return openAt(t, service, model, root+"/v1", args) })
			}
		}
	})
}
