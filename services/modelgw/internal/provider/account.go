package provider

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// DefaultAccount is the account of requests that name none.
const DefaultAccount = "default"

// Account is access to an upstream API as it is configured.
type Account struct {
	// APIKey is the credential.
	APIKey config.Secret `yaml:"api_key"`
	// BaseURL is where the API is; empty is the vendor's own address.
	BaseURL string `yaml:"base_url"`
	// AllowedBaseURLs are further addresses that a request may use: exactly these, or a plain path below them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls"`
	// KeyOptional allows requests without a key, for servers that want none.
	KeyOptional bool `yaml:"key_optional"`
	// Keys are further credentials, among which the account's conversations are distributed.
	Keys []Key `yaml:"keys"`
}

// HasKey reports whether the account has a credential of its own.
func (a Account) HasKey() bool { return !a.APIKey.IsZero() || len(a.Keys) > 0 }

// ByName returns the accounts of a provider by name: the further ones, and own as the account `default`, whatever the
// further ones have under that name.
func ByName[A any](further map[string]A, own A) map[string]A {
	all := map[string]A{}
	maps.Copy(all, further)
	all[DefaultAccount] = own
	return all
}

// Endpoint returns the base URL of a request without a trailing slash: the requested one if the account allows it, else
// the account's, else the vendor's.
func (a Account) Endpoint(asked, vendor string) (string, error) {
	own := a.BaseURL
	if own == "" {
		own = vendor
	}
	own = strings.TrimRight(own, "/")
	asked = strings.TrimRight(asked, "/")
	if asked == "" || asked == own {
		return own, nil
	}
	for _, allowed := range a.AllowedBaseURLs {
		allowed = strings.TrimRight(allowed, "/")
		if below, ok := strings.CutPrefix(asked, allowed+"/"); asked == allowed || ok && plainPath(below) {
			return asked, nil
		}
	}
	return "", notAllowed(asked)
}

func notAllowed(asked string) error {
	return rpcerr.InvalidField("base_url", "%q is not allowed for the account; add it to the account's allowed_base_urls", strings.TrimRight(asked, "/"))
}

// plainPath reports whether every server reads a path unchanged: names of letters, digits and `-._~:@`, none of them
// `.` or `..`. A server might read an encoded character, a backslash, parameters or a query as another path.
func plainPath(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." || strings.ContainsFunc(name, unplain) {
			return false
		}
	}
	return true
}

func unplain(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~:@", r)
}

// hidden replaces the parts of an address that must not be shown.
const hidden = "xxxxx"

// ShownURL is an address as people may see it: without its password and its query, which may hold a key.
func ShownURL(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return hidden
	}
	if u.RawQuery != "" {
		u.RawQuery = hidden
	}
	return u.Redacted()
}

// Accounts are the configured accounts of a provider.
type Accounts struct {
	// Provider is the provider's name.
	Provider string
	// Named are the accounts by name.
	Named map[string]Account
	// Vendor is the vendor's own address; empty if there is none, so that each account needs its own.
	Vendor string
	// KeyHint describes how to set the key of an account.
	KeyHint func(name string) string
	// Lacks describes how to set what an account lacks beside the key, such as its address; empty if it lacks nothing.
	// Nil: accounts may lack their address alone.
	Lacks func(name string) string
}

// Access is the access through an account: a credential of it, and the address of the API.
type Access struct {
	// Account is the account as if it had this credential alone.
	Account
	// Endpoint is the base URL without a slash at its end.
	Endpoint string
	// Key is the number of the credential: 0 is the account's own, n the n-th of its Keys.
	Key int
}

// Open returns access through the account that spec names, at the address that it asks for; empty is the account's own.
// Of several credentials it is the one that the registry selects. It fails if the account is not configured, the
// address is not allowed, or the key is missing.
func (a *Accounts) Open(spec Spec) (Access, error) {
	name := spec.Account
	account, known := a.Named[name]
	if !known {
		return Access{}, NoSuchAccount(a.Provider, name, slices.Sorted(maps.Keys(a.Named)))
	}
	usable, err := account.credentialsFor(spec.BaseURL, a.Vendor)
	if err != nil {
		return Access{}, err
	}
	chosen := spec.credentials.choose(a.Provider+"/"+name, usable)
	own := chosen.BaseURL != "" // An address of its own lacks nothing of the account's.
	account = account.with(chosen)
	lacksKey := a.lacksKey(name, chosen)
	endpoint, err := account.Endpoint(spec.BaseURL, a.Vendor)
	switch {
	case err != nil:
		return Access{}, err
	case !own && a.lacks(name) != "":
		return Access{}, rpcerr.ProviderNotConfigured(a.Provider, name, "%s's account %q cannot be used: %s", a.Provider, name, a.lacks(name))
	case endpoint == "":
		return Access{}, rpcerr.ProviderNotConfigured(a.Provider, name, "the service %q of %s has no base_url in the configuration of modelgw", name, a.Provider)
	case lacksKey != "":
		return Access{}, NoKey(a.Provider, name, lacksKey)
	default:
		return Access{Account: account, Endpoint: endpoint, Key: chosen.number}, nil
	}
}

// Usable reports by name whether requests can be made through the accounts.
func (a *Accounts) Usable() []*modelv1.Account {
	var accounts []*modelv1.Account
	for _, name := range slices.Sorted(maps.Keys(a.Named)) {
		all, account := a.Named[name].credentials(), a.Named[name]
		first := account.with(all[0])
		endpoint, _ := first.Endpoint("", a.Vendor) // Fails only for a requested address.
		info := &modelv1.Account{
			Name: name, Usable: true, Keyless: first.KeyOptional && first.APIKey.IsZero(), BaseUrl: ShownURL(endpoint),
		}
		for _, c := range all {
			if !c.APIKey.IsZero() {
				info.Keys++
			}
			if problem := a.lacksKey(name, c); problem != "" && info.GetUsable() {
				info.Usable, info.Problem = false, problem
			}
		}
		if lacks := a.lacks(name); lacks != "" && all[0].BaseURL == "" {
			info.Usable, info.Keyless, info.Problem = false, false, lacks
		}
		accounts = append(accounts, info)
	}
	return accounts
}

// InCloud returns accounts as those of the models of a service, `azure`, `bedrock` or `vertex`. It changes them.
func InCloud(service string, accounts []*modelv1.Account) []*modelv1.Account {
	for _, a := range accounts {
		a.Service = service
	}
	return accounts
}

// lacksKey describes how to set the key of a credential of an account; empty if it has one or needs none.
func (a *Accounts) lacksKey(name string, c credential) string {
	switch {
	case !c.APIKey.IsZero() || a.Named[name].KeyOptional:
		return ""
	case c.number > 0:
		return fmt.Sprintf("set api_key of keys[%d]", c.number-1)
	default:
		return a.KeyHint(name)
	}
}

func (a *Accounts) lacks(name string) string {
	if a.Lacks == nil {
		return ""
	}
	return a.Lacks(name)
}

// NoSuchAccount is the failure of a request that names an account which is not configured.
func NoSuchAccount(kind, name string, known []string) error {
	return rpcerr.InvalidField("account", "%s has no account %q; configured: %s", kind, name, strings.Join(known, ", "))
}

// NoKey is the failure of a request whose account has no key; hint is how to set it.
func NoKey(kind, account, hint string) error {
	return rpcerr.ProviderNotConfigured(kind, account, "%s's account %q has no key: %s", kind, account, hint)
}
