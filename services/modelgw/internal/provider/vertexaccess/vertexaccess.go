// Package vertexaccess is the accounts of Google's Vertex AI for the providers of its models: a project and a location,
// and credentials of Google (googleauth), or a key of Vertex AI in express mode. The formats and the names of models
// are left to the providers.
package vertexaccess

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/accesstoken"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/googleauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Account is access to Vertex AI as it is configured.
type Account struct {
	// BaseURL is where the API is; empty is Google's own address for the location.
	BaseURL string `yaml:"base_url"`
	// AllowedBaseURLs are further addresses that a request may use: exactly these, or a plain path below them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls"`
	// Project is the project of Google Cloud.
	Project string `yaml:"project"`
	// Location is where models are served, such as `us-east5` or `global`.
	Location           string `yaml:"location"`
	googleauth.Account `yaml:",inline"`
}

// Names of projects and locations, which become parts of addresses.
var (
	projectName  = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z0-9-]+$`)
	locationName = regexp.MustCompile(`^[a-z0-9-]+$`)
)

var (
	errProject  = errors.New("project must be the id of a project of Google Cloud")
	errLocation = errors.New("location must be a name such as us-east5 or global")
)

// CheckPlace fails on texts that are no names of a project and a location. Empty is fine.
func CheckPlace(project, location string) error {
	switch {
	case project != "" && !projectName.MatchString(project):
		return errProject
	case location != "" && !locationName.MatchString(location):
		return errLocation
	default:
		return nil
	}
}

// Check returns the first fault of accounts by name. The account `default`, whose variables may be meant for other
// programs, is not among them: it is checked when it is used.
func Check(accounts map[string]Account) error {
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		if err := CheckPlace(accounts[name].Project, accounts[name].Location); err != nil {
			return fmt.Errorf("accounts.%s: %w", name, err)
		}
	}
	return nil
}

// multiRegions are the locations that are several regions.
var multiRegions = map[string]bool{"us": true, "eu": true}

// Host is Google's own address for a location; empty is the one for all.
func Host(location string) string {
	switch {
	case location == "", location == "global":
		return "https://aiplatform.googleapis.com"
	case multiRegions[location]:
		return "https://aiplatform." + location + ".rep.googleapis.com"
	default:
		return "https://" + location + "-aiplatform.googleapis.com"
	}
}

// API is what the accounts of a provider share.
type API struct {
	// Provider is the name for errors.
	Provider string
	// Version follows Google's own address, such as `/v1`; empty if base URLs are without it.
	Version string
	// Hint is how to give an account a project and a location.
	Hint string
}

// Accounts are the accounts of a provider. They are safe for concurrent use.
type Accounts struct {
	api    API
	named  map[string]Account
	keys   map[string]config.Secret
	tokens map[string]*accesstoken.Source
	http   *http.Client
}

// New returns accounts. keys are those of express mode by the names of accounts; an account with one needs neither a
// project nor other credentials. client is the base of the clients of requests, and fetches tokens.
func New(api API, named map[string]Account, keys map[string]config.Secret, client *http.Client) *Accounts {
	a := &Accounts{api: api, named: named, keys: keys, tokens: map[string]*accesstoken.Source{}, http: client}
	for name, account := range named {
		owner := googleauth.Owner{Provider: api.Provider, Account: name, Hint: "set GOOGLE_APPLICATION_CREDENTIALS, or credentials_file in the configuration of modelgw"}
		a.tokens[name] = googleauth.NewSource(owner, account.Account, client, "", googleauth.CloudPlatform)
	}
	return a
}

// Listed are the accounts as people see them. Whether Google gives tokens is known once one is needed.
func (a *Accounts) Listed() []*modelv1.Account {
	var all []*modelv1.Account
	for _, name := range slices.Sorted(maps.Keys(a.named)) {
		account, key := a.named[name], a.keys[name]
		one := &modelv1.Account{Name: name, BaseUrl: provider.ShownURL(cmp.Or(account.BaseURL, Host(account.Location)+a.api.Version))}
		fault := CheckPlace(account.Project, account.Location)
		switch {
		case fault != nil:
			one.Problem = fault.Error()
		case !key.IsZero():
			one.Usable, one.Keys = true, 1
		case account.Project == "" || account.Location == "":
			one.Problem = a.api.Hint
		default:
			one.Usable = true
			if !account.Credentials.IsZero() || account.CredentialsFile != "" {
				one.Keys = 1
			}
		}
		all = append(all, one)
	}
	return provider.InCloud("vertex", all)
}

// Access is the access of a model through an account.
type Access struct {
	// Endpoint is the base URL without a slash at its end.
	Endpoint string
	// Parent precedes the names of publishers in paths: `/projects/…/locations/…`; empty in express mode.
	Parent string
	// Key is the key of express mode, which the caller sends; zero if there is none.
	Key config.Secret
	// HTTP redacts the key, or sends the account's access tokens.
	HTTP *http.Client
}

// Open returns the access of a model through its account. project and location replace those of the account where they
// are not empty; an account with a key has none. It fails if the account is not configured, the address is not allowed,
// or the project or the location is missing.
func (a *Accounts) Open(spec provider.Spec, project, location string) (Access, error) {
	account, known := a.named[spec.Account]
	if !known {
		return Access{}, provider.NoSuchAccount(a.api.Provider, spec.Account, slices.Sorted(maps.Keys(a.named)))
	}
	if err := CheckPlace(project, location); err != nil {
		return Access{}, provider.InvalidArguments(err)
	}
	if err := CheckPlace(account.Project, account.Location); err != nil {
		return Access{}, rpcerr.ProviderNotConfigured(a.api.Provider, spec.Account, "%s's account %q cannot be used: %w", a.api.Provider, spec.Account, err)
	}
	access := Access{Key: a.keys[spec.Account]}
	if !access.Key.IsZero() && (project != "" || location != "") {
		return Access{}, provider.InvalidArguments(fmt.Errorf("the account %q of %s has a key of express mode, which has no project and no location; leave them out", spec.Account, a.api.Provider))
	}
	if access.Key.IsZero() {
		project, location = cmp.Or(project, account.Project), cmp.Or(location, account.Location)
		if project == "" || location == "" {
			return Access{}, rpcerr.ProviderNotConfigured(a.api.Provider, spec.Account, "%s's account %q has no project or no location: %s", a.api.Provider, spec.Account, a.api.Hint)
		}
		access.Parent = "/projects/" + project + "/locations/" + location
		access.HTTP = transport.Authorize(a.http, a.tokens[spec.Account])
	} else {
		location = ""
		access.HTTP = transport.RedactSecrets(a.http, access.Key)
	}
	plain := provider.Account{BaseURL: account.BaseURL, AllowedBaseURLs: account.AllowedBaseURLs}
	var err error
	access.Endpoint, err = plain.Endpoint(spec.BaseURL, Host(location)+a.api.Version)
	return access, err
}
