package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/daemon/daemontest"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// The whole way: a file that changed, the signal, and the service that runs.
func TestASignalReloadsTheConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	write := func(content string) { require.NoError(t, os.WriteFile(file, []byte(content), 0o600)) }
	write("modelgw: {openai: {}}\n")
	program := daemontest.Start(t, &configuration{}, map[string]string{"EVALFLEET_CONFIG": file})
	models := modelv1.NewModelServiceClient(program.Known())
	keys := func() int32 {
		answer, err := models.ListProviders(t.Context(), &modelv1.ListProvidersRequest{})
		require.NoError(t, err)
		for _, p := range answer.GetProviders() {
			if p.GetName() == "openai" {
				return p.GetAccounts()[0].GetKeys()
			}
		}
		return -1
	}
	assert.Zero(t, keys())
	write("modelgw: {openai: {api_key: one, keys: [{api_key: two}]}}\n")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	for ctx := waittest.Context(t); keys() != 2; {
		require.NoError(t, retry.Sleep(ctx, time.Millisecond))
	}
	write("modelgw: {openai: {api_kye: one}}\n")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	write("modelgw: {openai: {api_key: one}}\n")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	for ctx := waittest.Context(t); keys() != 1; {
		require.NoError(t, retry.Sleep(ctx, time.Millisecond))
	}
}
