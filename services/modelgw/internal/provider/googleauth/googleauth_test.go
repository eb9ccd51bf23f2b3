package googleauth_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/googleauth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var owner = googleauth.Owner{Provider: "google/vertex", Account: "default", Hint: "set it"}

// tokens serves Google's endpoint for tokens and returns the form of the last request.
func tokens(t *testing.T, status int, answer string) (address string, form func() map[string]string) {
	t.Helper()
	last := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		for name := range r.PostForm {
			last[name] = r.PostForm.Get(name)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() map[string]string { return last }
}

const granted = `{"access_token":"the-access-token","expires_in":3600,"token_type":"Bearer"}`

// serviceAccount is the file of a service account.
func serviceAccount(t *testing.T, address string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	document, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "robot@p.iam.gserviceaccount.com", "private_key_id": "k1", "token_uri": address,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	require.NoError(t, err)
	return string(document)
}

// A service account signs a statement about itself, which Google exchanges for a token.
func TestAServiceAccount(t *testing.T) {
	t.Parallel()
	address, form := tokens(t, http.StatusOK, granted)
	file := filepath.Join(t.TempDir(), "key.json")
	require.NoError(t, os.WriteFile(file, []byte(serviceAccount(t, address)), 0o600))
	s := googleauth.NewSource(owner, googleauth.Account{CredentialsFile: file}, http.DefaultClient, "", googleauth.CloudPlatform)
	token, err := s.Token(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "the-access-token", token.Value.Reveal())
	assert.InDelta(t, time.Hour.Seconds(), time.Until(token.Expires).Seconds(), 60)
	assert.Empty(t, token.Headers)
	assert.Equal(t, "urn:ietf:params:oauth:grant-type:jwt-bearer", form()["grant_type"])
	parts := strings.Split(form()["assertion"], ".")
	require.Len(t, parts, 3)
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(t, err)
	var said struct{ Iss, Scope, Aud string }
	require.NoError(t, json.Unmarshal(claims, &said))
	assert.Equal(t, struct{ Iss, Scope, Aud string }{"robot@p.iam.gserviceaccount.com", googleauth.CloudPlatform, address}, said)
}

// A workload of another cloud exchanges the token that it has there, as its file of credentials says.
func TestAnAccountOfAnotherCloud(t *testing.T) {
	t.Parallel()
	address, form := tokens(t, http.StatusOK, `{"access_token":"federated","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3600}`)
	subject := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(subject, []byte("token-of-the-workload"), 0o600))
	document := fmt.Sprintf(`{"type":"external_account","audience":"//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
		"subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":%q,"credential_source":{"file":%q}}`, address, subject)
	s := googleauth.NewSource(owner, googleauth.Account{Credentials: config.NewSecret(document)}, http.DefaultClient, "", googleauth.CloudPlatform)
	token, err := s.Token(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "federated", token.Value.Reveal())
	assert.Equal(t, "token-of-the-workload", form()["subject_token"])
}

// A server of tokens that does not answer is waited for no longer than the fetch may take: others wait for its end.
func TestAServerOfTokensThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel()
		<-release
	}))
	defer server.Close()
	defer close(release)
	account := googleauth.Account{Credentials: config.NewSecret(serviceAccount(t, server.URL))}
	failed := make(chan error, 1)
	go func() {
		_, err := googleauth.Fetch(ctx, owner, account, http.DefaultClient)
		failed <- err
	}()
	select {
	case err := <-failed:
		require.ErrorContains(t, err, "Google does not answer")
		assert.Equal(t, provider.Transient, provider.ClassOfError(err))
	case <-time.After(time.Minute):
		t.Error("the fetch does not end")
	}
}

// What Google says of refused credentials is not repeated but for its code, and the credentials are in no error.
func TestFailures(t *testing.T) {
	t.Parallel()
	busy, _ := tokens(t, http.StatusServiceUnavailable, "private-key-of-the-account")
	refusing, _ := tokens(t, http.StatusBadRequest, `{"error":"invalid_grant","error_description":"private-key-of-the-account"}`)
	odd, _ := tokens(t, http.StatusOK, `private-key-of-the-account`)
	for name, tt := range map[string]struct {
		account   googleauth.Account
		says      string
		transient bool
	}{
		"busy":                  {googleauth.Account{Credentials: config.NewSecret(serviceAccount(t, busy))}, "Google answers with an error", true},
		"refused":               {googleauth.Account{Credentials: config.NewSecret(serviceAccount(t, refusing))}, "400 invalid_grant", false},
		"odd":                   {googleauth.Account{Credentials: config.NewSecret(serviceAccount(t, odd))}, "does not answer as it should", true},
		"unreachable":           {googleauth.Account{Credentials: config.NewSecret(serviceAccount(t, "http://127.0.0.1:1/"))}, "cannot be reached", true},
		"a missing file":        {googleauth.Account{CredentialsFile: "/no/such/file-private-key-of-the-account"}, "no such file", false},
		"no JSON":               {googleauth.Account{Credentials: config.NewSecret("private-key-of-the-account")}, "no JSON object", false},
		"another type":          {googleauth.Account{Credentials: config.NewSecret(`{"type":"other"}`)}, `"other"`, false},
		"a key that is no key":  {googleauth.Account{Credentials: config.NewSecret(`{"type":"service_account","private_key":"private-key-of-the-account"}`)}, "private key", false},
		"an incomplete account": {googleauth.Account{Credentials: config.NewSecret(`{"type":"external_account"}`)}, "cannot be read", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := googleauth.NewSource(owner, tt.account, http.DefaultClient, "", "s").Token(t.Context())
			require.ErrorContains(t, err, tt.says)
			assert.NotContains(t, err.Error(), "private-key-of-the-account")
			assert.Equal(t, tt.transient, provider.ClassOfError(err) == provider.Transient)
			if !tt.transient {
				assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED), "%v", err)
				assert.ErrorContains(t, err, "set it")
			}
		})
	}
}
