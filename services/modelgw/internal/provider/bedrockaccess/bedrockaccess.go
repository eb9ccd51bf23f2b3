// Package bedrockaccess is the accounts of Amazon Bedrock for the providers of its APIs: Converse, Anthropic's
// messages, and OpenAI's. An account has a Bedrock API key, or credentials of AWS (awsauth) that sign requests or make
// short-lived keys. The formats and the names of models are left to the providers.
package bedrockaccess

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/lru"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/accesstoken"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// service is the name of Bedrock in signatures.
const service = "bedrock"

// Runtime is the address of the APIs Converse and InvokeModel in a region.
func Runtime(region string) string { return "https://bedrock-runtime." + awsauth.Domain(region) }

// Account is access to Bedrock as it is configured.
type Account struct {
	// APIKey is a Bedrock API key, which is sent in the place of a signature.
	APIKey config.Secret `yaml:"api_key"`
	// BaseURL is where the API is; empty is Bedrock's own address in the region.
	BaseURL string `yaml:"base_url"`
	// AllowedBaseURLs are further addresses that a request may use: exactly these, or a plain path below them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls"`
	awsauth.Account `yaml:",inline"`
}

// isReachable reports whether it is known where requests go: in a region, which a profile may have, or for a key at an
// address. Whether AWS's default chain gives credentials is known once they are needed.
func (a *Account) isReachable(region, address string) bool {
	switch {
	case region != "":
		return true
	case a.APIKey.IsZero():
		return a.Profile != ""
	default:
		return a.BaseURL != "" || address != ""
	}
}

// Check returns the first fault of accounts by name. The account `default`, whose variables may be meant for other
// programs, is not among them: it is checked when it is used.
func Check(accounts map[string]Account) error {
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		account := accounts[name]
		if err := account.Check(); err != nil {
			return fmt.Errorf("accounts.%s: %w", name, err)
		}
	}
	return nil
}

// API is one of Bedrock's APIs.
type API struct {
	// Provider is the name for errors.
	Provider string
	// Address is the address of the API in a region.
	Address func(region string) string
	// Hint is how to give an account credentials.
	Hint string
	// Region is that of accounts that name none; empty leaves it to the profile.
	Region string
}

// Accounts are the accounts of one API. They are safe for concurrent use.
type Accounts struct {
	api   API
	named map[string]*account
	http  *http.Client
}

// account is an account, with the source of its credentials.
type account struct {
	Account
	source *awsauth.Source
	signer *awsauth.Signer
	// bearer is the client for requests with the API key.
	bearer awsauth.Client

	mu sync.Mutex
	// tokens are the short-lived keys by region. Requests choose regions, so that the latest ones are kept.
	tokens *lru.Cache[string, *accesstoken.Source]
}

// maxRegions bounds the regions whose short-lived keys an account keeps.
const maxRegions = 100

// New returns accounts. client is the base of the clients of requests.
func New(api API, named map[string]Account, client *http.Client) *Accounts {
	all := &Accounts{api: api, named: map[string]*account{}, http: client}
	for name, a := range named {
		a.Region = cmp.Or(a.Region, api.Region)
		source := awsauth.NewSource(all.owner(name), a.Account, client)
		all.named[name] = &account{
			Account: a, source: source, signer: awsauth.NewSigner(source, service), tokens: lru.New[string, *accesstoken.Source](maxRegions),
			bearer: awsauth.Client{HTTP: transport.RedactSecrets(client, a.APIKey), Codec: transport.RedactEvents(a.APIKey)},
		}
	}
	return all
}

func (a *Accounts) owner(name string) awsauth.Owner {
	return awsauth.Owner{Provider: a.api.Provider, Account: name, Hint: a.api.Hint}
}

// Listed are the accounts as people see them.
func (a *Accounts) Listed() []*modelv1.Account {
	var all []*modelv1.Account
	for _, name := range slices.Sorted(maps.Keys(a.named)) {
		one := a.named[name]
		listed := a.owner(name).Listed(&one.Account.Account, one.BaseURL, a.api.Address, one.isReachable(one.Region, ""))
		if !one.APIKey.IsZero() {
			listed.Keys = 1
		}
		all = append(all, listed)
	}
	return all
}

// Open returns the access of a model through its account, in a region; empty is the account's, or that of its profile
// in AWS's files of now. It fails if the account is not configured, the address is not allowed, or it is not known
// where requests go.
func (a *Accounts) Open(spec provider.Spec, region string) (*Access, error) {
	one, known := a.named[spec.Account]
	if !known {
		return nil, provider.NoSuchAccount(a.api.Provider, spec.Account, slices.Sorted(maps.Keys(a.named)))
	}
	region = cmp.Or(region, one.Region)
	access := &Access{Address: a.api.Address, account: one, region: region, asked: spec.BaseURL, http: a.http}
	if _, err := access.Endpoint(region); err != nil {
		return nil, err
	}
	if err := one.Check(); err != nil {
		return nil, rpcerr.ProviderNotConfigured(a.api.Provider, spec.Account, "%s's account %q cannot be used: %w", a.api.Provider, spec.Account, err)
	}
	if !one.isReachable(region, spec.BaseURL) {
		return nil, rpcerr.ProviderNotConfigured(a.api.Provider, spec.Account, "%s's account %q has neither a region nor credentials: %s", a.api.Provider, spec.Account, a.api.Hint)
	}
	if region == "" && one.APIKey.IsZero() {
		var err error
		if access.region, err = one.source.Region(context.Background()); err != nil {
			return nil, err
		}
	}
	return access, nil
}

// Access is the access of a model through an account. It is safe for concurrent use.
type Access struct {
	// Address is that of the API in a region. It may be replaced before the first request.
	Address func(region string) string

	account *account
	region  string
	asked   string
	http    *http.Client
}

// Region is the region of requests; it may be empty for a key that is sent to an address of its own.
func (a *Access) Region() string { return a.region }

// Key is the account's API key; zero if it has none.
func (a *Access) Key() config.Secret { return a.account.APIKey }

// Endpoint is the address of the API in a region: the requested one if the account allows it, else the account's, else
// Bedrock's own.
func (a *Access) Endpoint(region string) (string, error) {
	plain := provider.Account{BaseURL: a.account.BaseURL, AllowedBaseURLs: a.account.AllowedBaseURLs}
	return plain.Endpoint(a.asked, a.Address(region))
}

// Server is the address of the API.
func (a *Access) Server() string {
	address, _ := a.Endpoint(a.region) // Fails only for a requested address, which was allowed.
	return address
}

// Target is where requests go, and how they are authorized.
type Target struct {
	// Client signs requests, or redacts the key that is in Header.
	awsauth.Client
	// Endpoint is the base URL without a slash at its end.
	Endpoint string
	// Header is the request's own.
	Header http.Header
}

// Target returns the target with the credentials of now. Its errors are those of the credentials:
// PROVIDER_NOT_CONFIGURED, a transient *provider.Error, or the context's.
func (a *Access) Target(ctx context.Context) (Target, error) {
	to := Target{Client: a.account.bearer, Header: http.Header{}}
	if a.account.APIKey.IsZero() {
		var err error
		if to.Client, err = a.account.signer.Client(ctx, a.region); err != nil {
			return Target{}, err
		}
	} else {
		to.Header.Set("Authorization", "Bearer "+a.account.APIKey.Reveal())
	}
	var err error
	to.Endpoint, err = a.Endpoint(a.region)
	return to, err
}

// Forget drops the credentials, after AWS has refused them.
func (a *Access) Forget() { a.account.signer.Forget() }

// BearerClient returns a client for an API that takes keys alone. It redacts the account's key, which the caller sends,
// or sends short-lived keys that the account's credentials of AWS make, for the region, which must be known.
func (a *Access) BearerClient() *http.Client {
	if !a.account.APIKey.IsZero() {
		return a.account.bearer.HTTP
	}
	a.account.mu.Lock()
	defer a.account.mu.Unlock()
	tokens, kept := a.account.tokens.Get(a.region)
	if !kept {
		tokens = awsauth.NewTokens(a.account.source, service, a.region)
		a.account.tokens.Put(a.region, tokens, 1)
	}
	return transport.Authorize(a.http, tokens)
}
