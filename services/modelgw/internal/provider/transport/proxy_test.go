package transport_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/http1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Where only a proxy leads out, vendors are reached through it, and servers of one's own are not.
func TestTheProxyOfTheEnvironmentIsPassed(t *testing.T) {
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.RequestURI)
		_, _ = io.WriteString(w, "by the proxy")
	}))
	defer proxy.Close()
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "direct") }))
	defer own.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("NO_PROXY", "")
	client := transport.NewClient()
	for address, want := range map[string]string{"http://vendor.example/v1/models": "by the proxy", own.URL: "direct"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		answer, err := client.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, want, string(body))
	}
	assert.Equal(t, []string{"http://vendor.example/v1/models"}, asked)
	client.CloseIdleConnections()
}

// Clouds give the credentials of a machine at link-local addresses, or at ones of their own, in clear: no proxy gets to
// read them.
func TestAddressesOfCredentialsHaveNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://proxy.example:3128")
	t.Setenv("NO_PROXY", "")
	client := transport.NewClient()
	proxied := func(address string) bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		proxy, err := client.Transport.(*http1.Transport).Proxy(r)
		require.NoError(t, err)
		return proxy != nil
	}
	for _, address := range []string{
		"http://169.254.169.254/metadata/identity/oauth2/token", "http://169.254.170.2:80/v2/credentials", "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/",
		"http://[fd00:ec2::254]/latest/api/token", "http://[fd00:ec2::23]/v1/credentials",
	} {
		assert.False(t, proxied(address), address)
	}
	for _, address := range []string{"http://169.253.169.254/", "http://10.0.0.1/", "http://[fd00:ec3::254]/", "http://vendor.example/"} {
		assert.True(t, proxied(address), address)
	}
}
