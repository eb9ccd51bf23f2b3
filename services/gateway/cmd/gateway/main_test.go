package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/daemon/daemontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	err := daemontest.Refused(t, &configuration{}, map[string]string{"EVALFLEET_LISTEN": "0.0.0.0:1"}, "")
	for _, name := range []string{"EVALFLEET_TOKEN_FILE", "EVALFLEET_MODELGW_ADDRESS", "EVALFLEET_AGENTORCH_ADDRESS", "allow_remote"} {
		assert.ErrorContains(t, err, name)
	}
}

func TestServesAndStops(t *testing.T) {
	t.Parallel()
	program := daemontest.Start(t, &configuration{}, map[string]string{
		"EVALFLEET_MODELGW_ADDRESS": "127.0.0.1:1", "EVALFLEET_TOOLEXEC_ADDRESS": "127.0.0.1:1",
		"EVALFLEET_SANDBOXD_ADDRESS": "127.0.0.1:1", "EVALFLEET_AGENTORCH_ADDRESS": "127.0.0.1:1",
	})
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/openapi.json": http.StatusOK, "/metrics": http.StatusUnauthorized} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+program.Address+path, nil)
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, want, resp.StatusCode, path)
	}
}
