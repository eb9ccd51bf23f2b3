package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/daemon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs the program in an environment of its own.
func run(ctx context.Context, env map[string]string, ready func(net.Addr), args ...string) error {
	return daemon.Run(ctx, daemon.Command{
		Args: args, Env: func(name string) (string, bool) { value, ok := env[name]; return value, ok }, Stderr: io.Discard, Ready: ready,
	}, &configuration{})
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), map[string]string{"EVALFLEET_LISTEN": "0.0.0.0:1"}, nil)
	for _, name := range []string{"EVALFLEET_TOKEN_FILE", "EVALFLEET_MODELGW_ADDRESS", "EVALFLEET_AGENTORCH_ADDRESS", "allow_remote"} {
		assert.ErrorContains(t, err, name)
	}
}

func TestServesAndStops(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	env := map[string]string{
		"EVALFLEET_LISTEN": "127.0.0.1:0", "EVALFLEET_TOKEN_FILE": filepath.Join(t.TempDir(), "token"), "EVALFLEET_LOG_LEVEL": "error",
		"EVALFLEET_MODELGW_ADDRESS": "127.0.0.1:1", "EVALFLEET_TOOLEXEC_ADDRESS": "127.0.0.1:1",
		"EVALFLEET_SANDBOXD_ADDRESS": "127.0.0.1:1", "EVALFLEET_AGENTORCH_ADDRESS": "127.0.0.1:1",
	}
	serving := make(chan net.Addr, 1)
	go func() { done <- run(ctx, env, func(address net.Addr) { serving <- address }) }()
	address := (<-serving).String()
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/openapi.json": http.StatusOK, "/metrics": http.StatusUnauthorized} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, want, resp.StatusCode, path)
	}
	stop()
	require.NoError(t, <-done)
}
