package openaicompat

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
)

// Config sets up servers of others: models `openai-api/<service>/<model>`.
type Config struct {
	// Services are the servers by the name that follows `openai-api/`. Variables set them too: `ACME_AI_API_KEY` and
	// `ACME_AI_BASE_URL` are the key and the address of the service `acme-ai`, and add it if both are set.
	Services map[string]provider.Account `yaml:"services"`
}

// Services are the configurations of services by name. Each has the name of a known service.
type Services map[string]ServiceConfig

// ServiceConfig is the configuration of one service: the account `default`, and further ones.
type ServiceConfig struct {
	Account `yaml:",inline"`
	// Accounts are further accounts by name.
	Accounts map[string]Account `yaml:"accounts"`
}

// Account is an account with a service.
type Account struct {
	provider.Account `yaml:",inline"`
	// AccountID is the id of the account, of a service whose address contains it: cloudflare.
	AccountID string `yaml:"account_id"`
	// Identity is an identity of Entra ID, which is used if the account has no key: azureai.
	Identity azureauth.Identity `yaml:"identity"`
}

// suffixes of the variables of a service of openai-api.
const (
	keySuffix     = "_API_KEY"
	addressSuffix = "_BASE_URL"
)

// ReadEnv implements config.EnvReader. A variable replaces what the file says of a service. Variables alone make a
// service only where both are set, and the address is one, so that each key has an address that an operator has chosen.
func (c *Config) ReadEnv(env config.Variables) {
	all := map[string]provider.Account{}
	maps.Copy(all, c.Services)
	known := map[string]bool{}
	for name := range all {
		known[envName(name)] = true
	}
	for _, variable := range env.Names() {
		prefix, ok := strings.CutSuffix(variable, keySuffix)
		if ok && plainPrefix.MatchString(prefix) && !known[prefix] && env.Get(variable) != "" && isAddress(env.Get(prefix+addressSuffix)) {
			all[strings.ToLower(strings.ReplaceAll(prefix, "_", "-"))] = provider.Account{}
		}
	}
	for name, account := range all {
		takeEnv(&account, env, []string{envName(name) + keySuffix}, []string{envName(name) + addressSuffix})
		all[name] = account
	}
	if len(all) > 0 {
		c.Services = all
	}
}

// plainPrefix matches what variables of services begin with, so that the name that is made of it leads back to them.
var plainPrefix = regexp.MustCompile(`^[A-Z0-9][A-Z0-9_]*$`)

// Validate refuses services that share their variables: each would be sent the key of the other.
func (c *Config) Validate() error {
	byVariable := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		byVariable[envName(name)] = append(byVariable[envName(name)], name)
	}
	var faults []error
	for _, prefix := range slices.Sorted(maps.Keys(byVariable)) {
		if names := byVariable[prefix]; len(names) > 1 {
			faults = append(faults, fmt.Errorf("services: %s have the same variables, %s and %s; keep one of these names",
				strings.Join(names, ", "), prefix+keySuffix, prefix+addressSuffix))
		}
	}
	return errors.Join(faults...)
}

// isAddress reports whether a text is the address of a server. A pair of variables with another one is for others.
func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// takeEnv takes an account's key and address from variables.
func takeEnv(account *provider.Account, env config.Variables, keys, addresses []string) {
	if key := env.Get(keys...); key != "" {
		account.APIKey = config.NewSecret(key)
	}
	account.BaseURL = cmp.Or(env.Get(addresses...), account.BaseURL)
}

// ReadEnv implements config.EnvReader.
func (c *Services) ReadEnv(env config.Variables) {
	for i := range services {
		s := &services[i]
		before := (*c)[s.Name]
		after := before
		takeEnv(&after.Account.Account, env, s.keyEnv(), s.addressEnv())
		if s.AccountIDEnv != "" {
			after.AccountID = cmp.Or(env.Get(s.AccountIDEnv), after.AccountID)
		}
		if s.Identity && after.Identity.IsZero() {
			if identity := azureauth.FromVariables(env); !identity.IsZero() {
				after.Identity = identity
			}
		}
		if allowed := env.Get("EVALFLEET_MODELGW_" + envName(s.Name) + "_ALLOWED_BASE_URLS"); allowed != "" {
			after.AllowedBaseURLs = strings.FieldsFunc(allowed, func(r rune) bool { return r == ',' || r == ' ' })
		}
		if after.APIKey == before.APIKey && after.BaseURL == before.BaseURL && after.AccountID == before.AccountID &&
			after.Identity == before.Identity && slices.Equal(after.AllowedBaseURLs, before.AllowedBaseURLs) {
			continue
		}
		if *c == nil {
			*c = Services{}
		}
		(*c)[s.Name] = after
	}
}

// plainID matches the ids of accounts, which become a part of an address.
var plainID = regexp.MustCompile(`^[A-Za-z0-9_-]*$`)

// Validate returns every fault, with its key in the configuration of the gateway.
func (c Services) Validate() error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(c)) {
		service, ok := known(name)
		if !ok {
			faults = append(faults, fmt.Errorf("services.%s: no such service; known are %s; any other is configured below openai_api.services", name, strings.Join(Names(), ", ")))
			continue
		}
		for account, a := range c.accounts(name) {
			if !service.Identity && a.Identity != (azureauth.Identity{}) {
				faults = append(faults, fmt.Errorf("services.%s: the account %q cannot have an identity of Azure", name, account))
			}
			if !plainID.MatchString(a.AccountID) {
				faults = append(faults, fmt.Errorf("services.%s: the account_id of the account %q must be of letters, digits, - and _", name, account))
			}
		}
	}
	return errors.Join(faults...)
}

// accounts are the accounts of a service by name, the default one included.
func (c Services) accounts(service string) map[string]Account {
	return provider.ByName(c[service].Accounts, c[service].Account)
}

// AccountNames are the names of the accounts of each provider.
func (c Services) AccountNames() map[string][]string {
	all := map[string][]string{}
	for _, name := range Names() {
		all[name] = slices.Sorted(maps.Keys(c.accounts(name)))
		if s, _ := known(name); s.Raw {
			all[name+rawSuffix] = all[name]
		}
	}
	return all
}

// BaseURLs are the addresses of the configured accounts, by their keys below those of the services.
func (c Services) BaseURLs() map[string]string {
	all := map[string]string{}
	for name, service := range c {
		all[name+".base_url"] = service.BaseURL
		for account, a := range service.Accounts {
			all[name+".accounts."+account+".base_url"] = a.BaseURL
		}
	}
	return all
}

// Names are the names of the known services, sorted.
func Names() []string {
	var all []string
	for i := range services {
		all = append(all, services[i].Name)
	}
	slices.Sort(all)
	return all
}

// known returns a service by its name.
func known(name string) (*Service, bool) {
	i := slices.IndexFunc(services, func(s Service) bool { return s.Name == name })
	if i < 0 {
		return nil, false
	}
	return &services[i], true
}
