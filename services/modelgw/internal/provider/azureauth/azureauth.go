// Package azureauth is access to models on Azure for providers: accounts that have a key, or an identity of Entra ID in
// its place, which is an application with a secret, an application with a workload's own token (workload
// identity federation), or the identity of the machine (managed identity). How tokens are cached is accesstoken.
//
// Nothing is read before the first request. No error has a secret, or what Azure says beside its code.
package azureauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/accesstoken"
)

const (
	// defaultAudience is the scope of Azure's services of models, as Inspect has it.
	defaultAudience = "https://cognitiveservices.azure.com/.default"
	// defaultAuthority is Entra ID in the public cloud.
	defaultAuthority = "https://login.microsoftonline.com"
	// machine is where a virtual machine gets tokens of its identity:
	// https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token.
	machine        = "http://169.254.169.254/metadata/identity/oauth2/token"
	machineVersion = "2018-02-01"
	// hostedVersion is that of the endpoint of an identity which Azure's services for applications set:
	// https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference.
	hostedVersion = "2019-08-01"
	// assertion is the type of a token in place of a secret (RFC 7523).
	assertion = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	// maxAnswerBytes bounds the answer with a token.
	maxAnswerBytes = 1 << 20
)

// Identity is an identity of Entra ID as it is configured: of a tenant's application, or of the machine. It is used
// where an account has no key.
type Identity struct {
	// TenantID is the tenant of the application.
	TenantID string `yaml:"tenant_id"`
	// ClientID is the id of the application, or of the identity if the machine has several.
	ClientID string `yaml:"client_id"`
	// ClientSecret is the secret of the application.
	ClientSecret config.Secret `yaml:"client_secret"`
	// FederatedTokenFile is a file with a token in place of the secret of the application, such as that of a
	// workload in Kubernetes. It is read for each token.
	FederatedTokenFile string `yaml:"federated_token_file"`
	// AuthorityHost is the address of Entra ID; default is that of the public cloud.
	AuthorityHost string `yaml:"authority_host"`
	// ManagedIdentity uses the identity of the machine.
	ManagedIdentity bool `yaml:"managed_identity"`
	// Audience is the scope that tokens are for. Default https://cognitiveservices.azure.com/.default.
	Audience string `yaml:"audience"`
	// Endpoint is where a service for applications gives tokens of the machine's identity, which is then used.
	Endpoint string `yaml:"endpoint"`
	// EndpointHeader is what the endpoint wants in a header.
	EndpointHeader config.Secret `yaml:"endpoint_header"`
}

// Default is the identity of the account `default`, which has the variables of Azure's own programs. It is used if the
// account has no key.
type Default struct {
	// TenantID is the tenant of the application.
	TenantID string `yaml:"tenant_id" env:"AZURE_TENANT_ID"`
	// ClientID is the id of the application, or of the identity if the machine has several.
	ClientID string `yaml:"client_id" env:"AZURE_CLIENT_ID"`
	// ClientSecret is the secret of the application.
	ClientSecret config.Secret `yaml:"client_secret" env:"AZURE_CLIENT_SECRET"`
	// FederatedTokenFile is a file with a token in place of the secret of the application, such as that of a
	// workload in Kubernetes. It is read for each token.
	FederatedTokenFile string `yaml:"federated_token_file" env:"AZURE_FEDERATED_TOKEN_FILE"`
	// AuthorityHost is the address of Entra ID; default is that of the public cloud.
	AuthorityHost string `yaml:"authority_host" env:"AZURE_AUTHORITY_HOST"`
	// ManagedIdentity uses the identity of the machine. It is also used where IDENTITY_ENDPOINT is set.
	ManagedIdentity bool `yaml:"managed_identity" env:"EVALFLEET_MODELGW_AZURE_MANAGED_IDENTITY"`
	// Audience is the scope that tokens are for. Default https://cognitiveservices.azure.com/.default.
	Audience string `yaml:"audience" env:"AZUREAI_AUDIENCE"`
	// Endpoint is where a service for applications gives tokens of the machine's identity, which is then used. Azure
	// sets the variable.
	Endpoint string `yaml:"endpoint" env:"IDENTITY_ENDPOINT"`
	// EndpointHeader is what the endpoint wants in a header.
	EndpointHeader config.Secret `yaml:"endpoint_header" env:"IDENTITY_HEADER"`
}

// Identity returns the identity.
func (d *Default) Identity() Identity {
	return Identity(*d)
}

// FromVariables returns the identity that the variables of Azure's own programs describe, as Default has them.
func FromVariables(env config.Variables) Identity {
	managed, _ := strconv.ParseBool(env.Get("EVALFLEET_MODELGW_AZURE_MANAGED_IDENTITY"))
	return Identity{
		TenantID: env.Get("AZURE_TENANT_ID"), ClientID: env.Get("AZURE_CLIENT_ID"), ClientSecret: config.NewSecret(env.Get("AZURE_CLIENT_SECRET")),
		FederatedTokenFile: env.Get("AZURE_FEDERATED_TOKEN_FILE"), AuthorityHost: env.Get("AZURE_AUTHORITY_HOST"), ManagedIdentity: managed,
		Audience: env.Get("AZUREAI_AUDIENCE"), Endpoint: env.Get("IDENTITY_ENDPOINT"), EndpointHeader: config.NewSecret(env.Get("IDENTITY_HEADER")),
	}
}

// IsZero reports whether nothing identifies the account: an application needs its tenant, its id and a secret or a
// token, and the identity of a machine must be asked for.
func (i *Identity) IsZero() bool {
	return !i.isApplication() && !i.isMachine()
}

func (i *Identity) isApplication() bool {
	return i.TenantID != "" && i.ClientID != "" && (!i.ClientSecret.IsZero() || i.FederatedTokenFile != "")
}

func (i *Identity) isMachine() bool { return i.ManagedIdentity || i.Endpoint != "" }

// owner identifies an account in errors.
type owner struct{ provider, account string }

// source fetches tokens of an identity.
type source struct {
	owner
	Identity
	http *http.Client
}

// newSource returns the tokens of an identity. A fetch fails with PROVIDER_NOT_CONFIGURED if Azure refuses the
// identity, with a transient *provider.Error if Azure cannot be reached or asks to wait, and with the context's error.
func newSource(o owner, i Identity, client *http.Client) *accesstoken.Source {
	s := &source{owner: o, Identity: i, http: client}
	return accesstoken.New(s.fetch)
}

// fetch fetches a token. An application is a more specific identity than the machine's.
func (s *source) fetch(ctx context.Context) (accesstoken.Token, error) {
	request, err := s.machineRequest(ctx)
	if s.isApplication() {
		request, err = s.applicationRequest(ctx)
	}
	if problem, ok := errors.AsType[unusable](err); ok {
		return accesstoken.Token{}, s.notConfigured(problem.Error())
	}
	if err != nil {
		return accesstoken.Token{}, s.notConfigured("has an authority_host or an endpoint that is not a URL")
	}
	answer, err := s.http.Do(request)
	if err != nil {
		return accesstoken.Token{}, s.later("Azure cannot be reached")
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes))
	if err != nil {
		return accesstoken.Token{}, s.later("the answer broke off")
	}
	var said answered
	_ = json.Unmarshal(body, &said)
	switch {
	case answer.StatusCode != http.StatusOK && provider.ClassOf(answer.StatusCode) != provider.Final:
		return accesstoken.Token{}, s.later("Azure answers with " + strconv.Itoa(answer.StatusCode))
	case answer.StatusCode != http.StatusOK:
		return accesstoken.Token{}, s.notConfigured(fmt.Sprintf("gets no token from Azure (%d %s)", answer.StatusCode, accesstoken.ErrorCode(said.Error)))
	case said.AccessToken == "":
		return accesstoken.Token{}, s.later("Azure's answer has no token")
	default:
		return accesstoken.Token{Value: config.NewSecret(said.AccessToken), Expires: said.expires()}, nil
	}
}

// answered is an answer with a token, or with an error. Endpoints of machines write numbers as texts.
type answered struct {
	AccessToken string      `json:"access_token"`
	ExpiresIn   json.Number `json:"expires_in"`
	ExpiresOn   json.Number `json:"expires_on"`
	Error       string      `json:"error"`
}

// defaultLife is the life of a token that does not say when it ends.
const defaultLife = 10 * time.Minute

// expires is when the token ends.
func (a *answered) expires() time.Time {
	if seconds, err := a.ExpiresIn.Int64(); err == nil && seconds > 0 {
		return time.Now().Add(time.Duration(seconds) * time.Second)
	}
	if at, err := a.ExpiresOn.Int64(); err == nil && at > 0 {
		return time.Unix(at, 0)
	}
	return time.Now().Add(defaultLife)
}

// applicationRequest asks Entra ID for a token of an application:
// https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow.
func (s *source) applicationRequest(ctx context.Context) (*http.Request, error) {
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {s.ClientID}, "scope": {cmp.Or(s.Audience, defaultAudience)}}
	if !s.ClientSecret.IsZero() {
		form.Set("client_secret", s.ClientSecret.Reveal())
	} else {
		token, err := os.ReadFile(s.FederatedTokenFile)
		if err != nil {
			return nil, unusable("cannot read the file of its federated token")
		}
		form.Set("client_assertion_type", assertion)
		form.Set("client_assertion", strings.TrimSpace(string(token)))
	}
	address := strings.TrimRight(cmp.Or(s.AuthorityHost, defaultAuthority), "/") + "/" + url.PathEscape(s.TenantID) + "/oauth2/v2.0/token"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return request, nil
}

// machineRequest asks for a token of the machine's identity. There the scope is a resource.
func (s *source) machineRequest(ctx context.Context) (*http.Request, error) {
	query := url.Values{"resource": {strings.TrimSuffix(cmp.Or(s.Audience, defaultAudience), "/.default")}, "api-version": {machineVersion}}
	if s.ClientID != "" {
		query.Set("client_id", s.ClientID)
	}
	header, value := "Metadata", "true"
	if s.Endpoint != "" {
		query.Set("api-version", hostedVersion)
		header, value = "X-Identity-Header", s.EndpointHeader.Reveal()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, cmp.Or(s.Endpoint, machine)+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set(header, value)
	return request, nil
}

// unusable is a reason why an identity cannot be used, which has no part of a secret.
type unusable string

// Error implements error.
func (u unusable) Error() string { return string(u) }

func (o owner) notConfigured(problem string) error {
	return rpcerr.ProviderNotConfigured(o.provider, o.account, "%s's account %q %s; check its identity in the configuration of modelgw", o.provider, o.account, problem)
}

func (o owner) later(why string) error {
	return &provider.Error{Provider: o.provider, Class: provider.Transient, Message: "no access token can be fetched now (" + why + ")"}
}
