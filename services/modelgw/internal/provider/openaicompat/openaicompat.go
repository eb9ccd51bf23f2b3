// Package openaicompat provides services that speak OpenAI's formats. Known services are providers of their
// own, such as `deepseek/<model>`; each is a [Service], a literal of a table. All others are configured with an address
// and a key, and are models `openai-api/<service>/<model>`. Servers that run already are used; none is started.
package openaicompat

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Name is the name of the provider of services that are configured.
const Name = "openai-api"

// configured is what is known of services that are configured.
var configured = Service{Name: Name, Description: "servers that speak OpenAI's chat completions, by configured service", Full: fullInput}

// host is a service with its accounts, shared by instances.
type host struct {
	service  *Service
	accounts azureauth.Accounts
	http     *http.Client
}

// Kind returns the provider of configured services. The function that is returned with it closes idle connections.
func Kind(c Config) (provider.Kind, func() error) {
	kind, h := hostOf(c)
	return kind, h.closeIdle
}

// RawKind is Kind for prompts without a chat's template: models `openai-api-completions/<service>/<model>`.
func RawKind(c Config) (provider.Kind, func() error) {
	kind, h := hostOf(c)
	return rawOf(kind), h.closeIdle
}

// hostOf returns the provider of configured services, and its host.
func hostOf(c Config) (provider.Kind, *host) {
	h := &host{service: &configured, http: transport.NewClient()}
	named := map[string]azureauth.Account{}
	for name, account := range c.Services {
		named[name] = azureauth.Account{Account: account}
	}
	h.accounts = azureauth.NewAccounts(provider.Accounts{Provider: Name, KeyHint: keyHint, Lacks: func(service string) string {
		if c.Services[service].BaseURL != "" {
			return ""
		}
		return fmt.Sprintf("set %s, or base_url of the service %q in the configuration of modelgw", envName(service)+addressSuffix, service)
	}}, named, h.http)
	kind := h.kind()
	kind.Open, kind.AccountInModel = h.openConfigured, true
	return kind, h
}

// Kinds returns the providers of the known services, by name. The function that is returned with them closes idle
// connections.
func Kinds(c Services) ([]provider.Kind, func() error) {
	client := transport.NewClient()
	var kinds []provider.Kind
	for _, name := range Names() {
		service, _ := known(name)
		h := newHost(service, c.accounts(name), client)
		kinds = append(kinds, h.kind())
		if service.Raw {
			kinds = append(kinds, rawOf(h.kind()))
		}
	}
	return kinds, (&host{http: client}).closeIdle
}

// newHost returns the host of a known service.
func newHost(s *Service, accounts map[string]Account, client *http.Client) *host {
	h := &host{service: s, http: client}
	shared := provider.Accounts{
		Provider: s.Name, Vendor: s.Address,
		KeyHint: func(account string) string { return setting(account, s, "api_key", s.keyEnv()) },
		Lacks: func(account string) string {
			a := accounts[account]
			switch {
			case s.AccountIDEnv != "" && a.AccountID == "":
				return setting(account, s, "account_id", []string{s.AccountIDEnv})
			case s.Address == "" && a.BaseURL == "":
				return started(s) + setting(account, s, "base_url", s.addressEnv())
			default:
				return ""
			}
		},
	}
	named := map[string]azureauth.Account{}
	for name, account := range accounts {
		plain := account.Account
		plain.KeyOptional = plain.KeyOptional || s.Keyless
		if s.AccountIDEnv != "" {
			plain.BaseURL = cmp.Or(plain.BaseURL, strings.ReplaceAll(s.Address, accountID, account.AccountID))
		}
		named[name] = azureauth.Account{Account: plain, Identity: account.Identity}
	}
	h.accounts = azureauth.NewAccounts(shared, named, client)
	return h
}

// started is what an operator does first where a server of one's own has no address: none is started here.
func started(s *Service) string {
	if s.Command == "" {
		return ""
	}
	return "evalfleet starts no server; run `" + s.Command + "` where it is to be, and "
}

// setting describes how to set a key of an account's configuration.
func setting(account string, s *Service, key string, variables []string) string {
	if account != provider.DefaultAccount {
		return fmt.Sprintf("set %s in modelgw.services.%s.accounts.%s of the configuration", key, s.Name, account)
	}
	return fmt.Sprintf("set %s, or %s in modelgw.services.%s of the configuration", strings.Join(variables, " or "), key, s.Name)
}

func keyHint(service string) string {
	return fmt.Sprintf("set %s, or api_key of the service %q in the configuration of modelgw, or key_optional", envName(service)+keySuffix, service)
}

func (h *host) kind() provider.Kind {
	speaks := openaichat.Name
	if h.service.Responses {
		speaks = openairesponses.Name
	}
	return provider.Kind{
		Name: h.service.Name, Description: h.service.Description, Dialect: speaks, Open: h.open, Accounts: h.accounts.Usable(), Vendor: h.accounts.Vendor,
	}
}

func (h *host) closeIdle() error {
	h.http.CloseIdleConnections()
	return nil
}

// open opens a model of a known service.
func (h *host) open(spec provider.Spec) (provider.Provider, error) {
	return h.openModel(spec, spec.Account, spec.Model, spec.Model)
}

// openConfigured opens a model whose name begins with its service.
func (h *host) openConfigured(spec provider.Spec) (provider.Provider, error) {
	service, name, ok := strings.Cut(spec.Model, "/")
	if !ok || name == "" {
		return nil, rpcerr.InvalidField("model", "%s/%s names no service: write %s/<service>/<model>", Name, spec.Model, Name)
	}
	if _, known := h.accounts.Named[service]; !known {
		names := slices.Sorted(maps.Keys(h.accounts.Named))
		return nil, rpcerr.ModelNotFound(Name+"/"+spec.Model, names, "unknown service %q of %s; configured: %s; set %s and %s, or base_url and api_key in modelgw.openai_api.services.%s of the configuration",
			service, Name, cmp.Or(strings.Join(names, ", "), "none"), envName(service)+keySuffix, envName(service)+addressSuffix, service)
	}
	if spec.Account != provider.DefaultAccount {
		return nil, rpcerr.InvalidField("account", "the model %s/%s names its service, %s; leave the account %q out", Name, spec.Model, service, spec.Account)
	}
	return h.openModel(spec, service, name, spec.Model)
}
