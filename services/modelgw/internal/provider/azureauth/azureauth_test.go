package azureauth_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "secret-of-the-application"

// roundTrip answers requests without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// entra is a client whose requests for tokens are answered so; requests for models are answered with their credential.
func entra(seen *[]*http.Request, status int, answer string) *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		said := answer
		code := status
		if r.Host == "models" {
			said, code = r.Header.Get("Authorization"), http.StatusUnauthorized
		} else {
			_ = r.ParseForm()
			*seen = append(*seen, r)
		}
		return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(said))}, nil
	})}
}

func opened(t *testing.T, account provider.Account, identity azureauth.Identity, client *http.Client) (*http.Client, error) {
	t.Helper()
	account.BaseURL = "http://models"
	a := azureauth.NewAccounts(provider.Accounts{
		Provider: "openai/azure", KeyHint: func(string) string { return "set a key" },
	}, map[string]azureauth.Account{"a": {Account: account, Identity: identity}}, client)
	_, opened, err := a.Open(provider.Spec{Account: "a"})
	return opened, err
}

func TestHowEachIdentityAsks(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("token-of-the-workload\n"), 0o600))
	application := azureauth.Identity{TenantID: "t", ClientID: "c", ClientSecret: config.NewSecret(secret)}
	federated := azureauth.Identity{TenantID: "t", ClientID: "c", FederatedTokenFile: file, AuthorityHost: "https://login.example/", Audience: "https://other/.default"}
	for name, tt := range map[string]struct {
		identity        azureauth.Identity
		address         string
		form            url.Values
		header, content string
	}{
		"an application": {application, "https://login.microsoftonline.com/t/oauth2/v2.0/token", url.Values{
			"grant_type": {"client_credentials"}, "client_id": {"c"}, "client_secret": {secret}, "scope": {"https://cognitiveservices.azure.com/.default"},
		}, "", ""},
		"a workload": {federated, "https://login.example/t/oauth2/v2.0/token", url.Values{
			"grant_type": {"client_credentials"}, "client_id": {"c"}, "client_assertion": {"token-of-the-workload"}, "scope": {"https://other/.default"},
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
		}, "", ""},
		"a machine": {azureauth.Identity{ManagedIdentity: true, ClientID: "c"}, "http://169.254.169.254/metadata/identity/oauth2/token", url.Values{
			"resource": {"https://cognitiveservices.azure.com"}, "api-version": {"2018-02-01"}, "client_id": {"c"},
		}, "Metadata", "true"},
		"a service for applications": {azureauth.Identity{Endpoint: "http://localhost:42/msi/token", EndpointHeader: config.NewSecret("h")}, "http://localhost:42/msi/token", url.Values{
			"resource": {"https://cognitiveservices.azure.com"}, "api-version": {"2019-08-01"},
		}, "X-Identity-Header", "h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []*http.Request
			client, err := opened(t, provider.Account{}, tt.identity, entra(&seen, http.StatusOK, `{"access_token":"the-access-token","expires_in":"3600"}`))
			require.NoError(t, err)
			for range 2 {
				answer, err := client.Get("http://models/v1")
				require.NoError(t, err)
				said, _ := io.ReadAll(answer.Body)
				assert.Equal(t, "Bearer ****************", string(said), "what comes back is redacted")
			}
			require.NotEmpty(t, seen)
			address := *seen[0].URL
			address.RawQuery = ""
			assert.Equal(t, tt.address, address.String())
			assert.Equal(t, tt.form, seen[0].Form)
			if tt.header != "" {
				assert.Equal(t, tt.content, seen[0].Header.Get(tt.header))
			}
		})
	}
}

// A key has precedence over an identity; half an identity is none.
func TestWhichAccountsSendTokens(t *testing.T) {
	t.Parallel()
	whole := azureauth.Identity{TenantID: "t", ClientID: "c", ClientSecret: config.NewSecret(secret)}
	var seen []*http.Request
	client, err := opened(t, provider.Account{APIKey: config.NewSecret("the-key-of-azure")}, whole, entra(&seen, http.StatusOK, ""))
	require.NoError(t, err)
	_, err = client.Get("http://models/v1")
	require.NoError(t, err)
	assert.Empty(t, seen)
	_, err = opened(t, provider.Account{}, azureauth.Identity{TenantID: "t", ClientID: "c"}, client)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED), "%v", err)
}

// What Azure says of an identity is not repeated but for its code.
func TestFailures(t *testing.T) {
	t.Parallel()
	application := azureauth.Identity{TenantID: "t", ClientID: "c", ClientSecret: config.NewSecret(secret)}
	missing := azureauth.Identity{TenantID: "t", ClientID: "c", FederatedTokenFile: "/no/such/file"}
	for name, tt := range map[string]struct {
		identity  azureauth.Identity
		status    int
		answer    string
		says      string
		transient bool
	}{
		"refused":          {application, 401, `{"error":"invalid_client","error_description":"` + secret + `"}`, "401 invalid_client", false},
		"refused, oddly":   {application, 400, `{"error":"` + secret + `"}`, "400 ", false},
		"busy":             {application, 503, secret, "503", true},
		"no token":         {application, 200, `{}`, "no token", true},
		"no file":          {missing, 200, `{}`, "federated token", false},
		"no such identity": {azureauth.Identity{ManagedIdentity: true}, 400, `{"error":"invalid_request"}`, "400 invalid_request", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []*http.Request
			client, err := opened(t, provider.Account{}, tt.identity, entra(&seen, tt.status, tt.answer))
			require.NoError(t, err)
			_, err = client.Get("http://models/v1")
			require.ErrorContains(t, err, tt.says)
			assert.NotContains(t, err.Error(), secret)
			reason := provider.Unsendable(err)
			require.Error(t, reason)
			assert.Equal(t, tt.transient, provider.ClassOfError(reason) == provider.Transient)
		})
	}
}

func TestTheVariablesOfAzuresPrograms(t *testing.T) {
	t.Parallel()
	var d azureauth.Default
	variables := map[string]string{
		"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s", "AZURE_FEDERATED_TOKEN_FILE": "f", "AZURE_AUTHORITY_HOST": "h", "AZUREAI_AUDIENCE": "a",
	}
	require.NoError(t, config.Load(t.Context(), &d, "", func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	}))
	assert.Equal(t, azureauth.Identity{
		TenantID: "t", ClientID: "c", ClientSecret: config.NewSecret("s"), FederatedTokenFile: "f", AuthorityHost: "h", Audience: "a",
	}, d.Identity())
}

// A token that is refused is fetched anew, and the request is sent once more with its body.
func TestARefusedTokenIsReplaced(t *testing.T) {
	t.Parallel()
	tokens := 0
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/token") {
			tokens++
			_, _ = io.WriteString(w, `{"access_token":"access-token-`+string(rune('0'+tokens))+`","expires_in":3600}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.Header.Get("Authorization")+" "+string(body))
		if r.Header.Get("Authorization") == "Bearer access-token-1" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	a := azureauth.NewAccounts(provider.Accounts{Provider: "p"}, map[string]azureauth.Account{
		"a": {Account: provider.Account{BaseURL: server.URL}, Identity: azureauth.Identity{Endpoint: server.URL + "/token"}},
	}, &http.Client{Transport: http.DefaultTransport})
	_, client, err := a.Open(provider.Spec{Account: "a"})
	require.NoError(t, err)
	answer, err := client.Post(server.URL+"/v1", "text/plain", strings.NewReader("body"))
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	_ = answer.Body.Close()
	assert.Equal(t, []string{"Bearer access-token-1 body", "Bearer access-token-2 body"}, bodies)
}

// Also one of several keys of an account has precedence over its identity.
func TestAnIdentityIsNotUsedBesideAKey(t *testing.T) {
	t.Parallel()
	a := azureauth.NewAccounts(provider.Accounts{Provider: "openai/azure"}, map[string]azureauth.Account{
		"a": {Account: provider.Account{BaseURL: "http://models", Keys: []provider.Key{{APIKey: config.NewSecret("the key")}}}, Identity: azureauth.Identity{ManagedIdentity: true}},
	}, &http.Client{})
	access, _, err := a.Open(provider.Spec{Account: "a"})
	require.NoError(t, err)
	assert.Equal(t, "the key", access.APIKey.Reveal())
}
