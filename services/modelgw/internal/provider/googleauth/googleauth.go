// Package googleauth gives access tokens of Google for providers: for a document of credentials (a service account, a
// user, an account of another cloud, or one that is impersonated), or for Google's application default credentials,
// which are a file at a known place or those of the machine. How tokens are cached is accesstoken, and the exchange
// with Google is golang.org/x/oauth2.
//
// Nothing is read before the first request. No error has a part of the credentials.
package googleauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/accesstoken"
)

// CloudPlatform is the scope of Google Cloud, which Vertex AI needs.
const CloudPlatform = "https://www.googleapis.com/auth/cloud-platform"

// Account are credentials as they are configured. Without any they are Google's application default credentials.
type Account struct {
	// Credentials is the content of a file of credentials; it has precedence over a file.
	Credentials config.Secret `yaml:"credentials"`
	// CredentialsFile is a file of credentials, such as the key of a service account.
	CredentialsFile string `yaml:"credentials_file"`
}

// Default is the account `default`, which has the variable of Google's own programs.
type Default struct {
	// Credentials is the content of a file of credentials; it has precedence over a file.
	Credentials config.Secret `yaml:"credentials"`
	// CredentialsFile is a file of credentials, such as the key of a service account. Without one, Google's application
	// default credentials are used.
	CredentialsFile string `yaml:"credentials_file" env:"GOOGLE_APPLICATION_CREDENTIALS"`
}

// Account returns the account.
func (d *Default) Account() Account {
	return Account{Credentials: d.Credentials, CredentialsFile: d.CredentialsFile}
}

// Owner identifies an account in errors.
type Owner struct {
	// Provider and Account are names.
	Provider, Account string
	// Hint is how to give the account credentials.
	Hint string
}

// quotaHeader has the project to which requests count, which Google needs for the credentials of users.
const quotaHeader = "X-Goog-User-Project"

// NewSource returns the tokens of an account. client fetches them. quotaProject is the project to which requests count;
// empty is that of the credentials, if they have one.
//
// A fetch fails with PROVIDER_NOT_CONFIGURED if there are no credentials or Google refuses them, with a transient
// *provider.Error if Google cannot be reached or asks to wait, and with the context's error.
func NewSource(owner Owner, account Account, client *http.Client, quotaProject string, scopes ...string) *accesstoken.Source {
	s := &source{owner: owner, account: account, http: client, quotaProject: quotaProject, scopes: scopes}
	return accesstoken.New(s.fetch)
}

type source struct {
	owner        Owner
	account      Account
	http         *http.Client
	quotaProject string
	scopes       []string
}

// bounded is the transport of a fetch: the library sends some of its requests without the fetch's context, and would
// wait without end for a server that does not answer.
type bounded struct {
	next http.RoundTripper
	end  context.Context
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	return b.next.RoundTrip(r.WithContext(b.end))
}

// fetch reads the credentials anew, since files change, and exchanges them for a token.
func (s *source) fetch(ctx context.Context) (accesstoken.Token, error) {
	client := *s.http
	if client.Transport == nil {
		client.Transport = http.DefaultTransport
	}
	client.Transport = bounded{client.Transport, ctx}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &client)
	found, err := s.credentials(ctx)
	if err != nil {
		return accesstoken.Token{}, s.fault(ctx, err)
	}
	got, err := found.TokenSource.Token()
	if err != nil {
		return accesstoken.Token{}, s.fault(ctx, err)
	}
	token := accesstoken.Token{Value: config.NewSecret(got.AccessToken), Expires: got.Expiry}
	if project := s.projectOf(found.JSON); project != "" {
		token.Headers = map[string]string{quotaHeader: project}
	}
	return token, nil
}

// projectOf is the project to which requests with credentials count.
func (s *source) projectOf(document []byte) string {
	if s.quotaProject != "" {
		return s.quotaProject
	}
	var said struct {
		QuotaProjectID string `json:"quota_project_id"`
	}
	_ = json.Unmarshal(document, &said)
	return said.QuotaProjectID
}

// types are the types of credentials that are taken. Those of an application that asks a person to log in are not.
var types = []google.CredentialsType{
	google.ServiceAccount, google.AuthorizedUser, google.ExternalAccount, google.ExternalAccountAuthorizedUser, google.ImpersonatedServiceAccount,
}

// unusable is a reason why credentials cannot be used, which has no part of them.
type unusable string

// Error implements error.
func (u unusable) Error() string { return string(u) }

// credentials reads the account's credentials.
func (s *source) credentials(ctx context.Context) (*google.Credentials, error) {
	document := []byte(s.account.Credentials.Reveal())
	switch {
	case len(document) > 0:
	case s.account.CredentialsFile != "":
		var err error
		if document, err = os.ReadFile(s.account.CredentialsFile); err != nil {
			return nil, unusable("cannot read its file of credentials (" + reason(err) + ")")
		}
	default:
		found, err := google.FindDefaultCredentials(ctx, s.scopes...)
		if err != nil {
			return nil, unusable("finds no application default credentials of Google")
		}
		return found, nil
	}
	var said struct {
		Type google.CredentialsType `json:"type"`
	}
	if json.Unmarshal(document, &said) != nil {
		return nil, unusable("has credentials that are no JSON object")
	}
	for _, kind := range types {
		if kind == said.Type {
			found, err := google.CredentialsFromJSONWithType(ctx, document, kind, s.scopes...)
			if err != nil {
				return nil, unusable("has credentials that cannot be read")
			}
			return found, nil
		}
	}
	return nil, unusable(fmt.Sprintf("has credentials of the type %.40q, which is not supported", said.Type))
}

// reason is an error of a file without its path.
func reason(err error) string {
	if failed, ok := errors.AsType[*os.PathError](err); ok {
		return failed.Err.Error()
	}
	return "it is no file"
}

// fault is the failure to get a token. What Google says may hold secrets, and is left out but for its code.
func (s *source) fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return s.later("Google does not answer")
	}
	if problem, ok := errors.AsType[unusable](err); ok {
		return s.notConfigured(problem.Error())
	}
	said, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !ok && strings.Contains(err.Error(), "private key"): // The library parses it with the first token.
		return s.notConfigured("has credentials whose private key cannot be read")
	case !ok:
		return s.later("Google cannot be reached, or does not answer as it should")
	case said.Response == nil || provider.ClassOf(said.Response.StatusCode) != provider.Final:
		return s.later("Google answers with an error")
	default:
		return s.notConfigured(fmt.Sprintf("gets no token from Google (%d %s)", said.Response.StatusCode, codeOf(said)))
	}
}

// codeOf is the code of an error, which the library does not read from each answer.
func codeOf(said *oauth2.RetrieveError) string {
	var body struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(said.Body, &body)
	return accesstoken.ErrorCode(cmp.Or(said.ErrorCode, body.Error))
}

func (s *source) notConfigured(problem string) error {
	return rpcerr.ProviderNotConfigured(s.owner.Provider, s.owner.Account, "%s's account %q %s: %s", s.owner.Provider, s.owner.Account, problem, s.owner.Hint)
}

func (s *source) later(why string) error {
	return &provider.Error{Provider: s.owner.Provider, Class: provider.Transient, Message: "no access token can be fetched now (" + why + ")"}
}
