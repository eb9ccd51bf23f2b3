package role_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/bench/internal/role"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start plays a role and returns its address.
func start(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- role.Main(ctx, args, write) }()
	t.Cleanup(func() { stop(); assert.NoError(t, waittest.For(t, done, "the role to end")) })
	var said struct{ Address string }
	require.NoError(t, json.NewDecoder(read).Decode(&said))
	return said.Address
}

func TestTheProxyPassesOnInTheProtocolOfTheRequest(t *testing.T) {
	t.Parallel()
	body := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(body, []byte(`{"a": 1}`), 0o600))
	stub := start(t, role.Stub, "-body", body)
	proxy := start(t, role.Proxy, "-to", stub)
	for major, set := range map[int]func(*http.Protocols){1: func(p *http.Protocols) { p.SetHTTP1(true) }, 2: func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }} {
		var protocols http.Protocols
		set(&protocols)
		transport := &http.Transport{Protocols: &protocols}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+proxy+"/x", strings.NewReader("hello"))
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, major, resp.ProtoMajor)
		assert.JSONEq(t, `{"a": 1}`, string(got))
		transport.CloseIdleConnections()
	}
}

func TestAWrongRoleIsNamed(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, role.Main(t.Context(), []string{"king"}, &bytes.Buffer{}), "king")
	require.Error(t, role.Main(t.Context(), nil, &bytes.Buffer{}))
	require.Error(t, role.Main(t.Context(), []string{role.Stub, "-body", "/nowhere"}, &bytes.Buffer{}))
}
