package googleauth_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/googleauth"
)

// A user's credentials, as `gcloud auth application-default login` writes them, name the project to which requests
// count. The configuration may name another.
func TestApplicationDefaultCredentialsOfAUser(t *testing.T) {
	var asked *http.Request
	client := &http.Client{Transport: roundTrip(func(r *http.Request) *http.Response {
		_ = r.ParseForm()
		asked = r
		return answerOf(granted)
	})}
	home := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(home, ".config/gcloud"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(home, ".config/gcloud/application_default_credentials.json"),
		[]byte(`{"type":"authorized_user","client_id":"c","client_secret":"s","refresh_token":"the-refresh-token","quota_project_id":"p1"}`), 0o600))
	t.Setenv("HOME", home)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	token, err := googleauth.NewSource(owner, googleauth.Account{}, client, "", "s").Token(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "the-access-token", token.Value.Reveal())
	assert.Equal(t, map[string]string{"X-Goog-User-Project": "p1"}, token.Headers)
	assert.Equal(t, "the-refresh-token", asked.PostForm.Get("refresh_token"))
	token, err = googleauth.NewSource(owner, googleauth.Account{}, client, "p2", "s").Token(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"X-Goog-User-Project": "p2"}, token.Headers)
}

func TestTheVariableOfGooglesPrograms(t *testing.T) {
	t.Parallel()
	var d googleauth.Default
	require.NoError(t, config.Load(t.Context(), &d, "", func(name string) (string, bool) {
		return "/a/file", name == "GOOGLE_APPLICATION_CREDENTIALS"
	}))
	assert.Equal(t, googleauth.Account{CredentialsFile: "/a/file"}, d.Account())
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func answerOf(body string) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
}
