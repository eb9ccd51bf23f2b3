package azureauth

import (
	"net/http"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/accesstoken"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Account is access to models on Azure as it is configured.
type Account struct {
	provider.Account `yaml:",inline"`
	// Identity is used if the account has no key.
	Identity Identity `yaml:"identity"`
}

// Accounts are accounts that have a key or an identity. They are safe for concurrent use.
type Accounts struct {
	provider.Accounts

	tokens map[string]*accesstoken.Source
	http   *http.Client
}

// NewAccounts returns accounts by name. plain has what they share; its own accounts are replaced. client is the base of
// their clients, and fetches their tokens.
func NewAccounts(plain provider.Accounts, named map[string]Account, client *http.Client) Accounts {
	a := Accounts{Accounts: plain, tokens: map[string]*accesstoken.Source{}, http: client}
	a.Named = map[string]provider.Account{}
	for name, account := range named {
		if account.APIKey.IsZero() && !account.Identity.IsZero() {
			a.tokens[name] = newSource(owner{plain.Provider, name}, account.Identity, client)
			account.KeyOptional = true
		}
		a.Named[name] = account.Account
	}
	return a
}

// Open returns access through an account as provider.Accounts does, and a client that redacts its key, or sends the
// access tokens of its identity and redacts those.
func (a *Accounts) Open(spec provider.Spec) (provider.Access, *http.Client, error) {
	access, err := a.Accounts.Open(spec)
	if err != nil {
		return provider.Access{}, nil, err
	}
	if tokens := a.tokens[spec.Account]; tokens != nil && access.APIKey.IsZero() {
		return access, transport.Authorize(a.http, tokens), nil
	}
	return access, transport.RedactSecrets(a.http, access.APIKey), nil
}

// Deployed are the accounts of models on Azure as people see them: each needs an address of its own.
func (a *Accounts) Deployed() []*modelv1.Account {
	all := a.Usable()
	for _, one := range all {
		if one.GetUsable() && one.GetBaseUrl() == "" {
			one.Usable, one.Problem = false, "set base_url, the address of the deployment"
		}
	}
	return provider.InCloud("azure", all)
}

// Usable is as that of provider.Accounts. An account with an identity is not one that needs no credential.
func (a *Accounts) Usable() []*modelv1.Account {
	all := a.Accounts.Usable()
	for _, one := range all {
		one.Keyless = one.GetKeyless() && a.tokens[one.GetName()] == nil
	}
	return all
}
