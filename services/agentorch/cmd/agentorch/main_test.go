package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
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
	for _, name := range []string{
		"EVALFLEET_DATA_DIR", "EVALFLEET_TOKEN_FILE", "EVALFLEET_MODELGW_ADDRESS", "EVALFLEET_TOOLEXEC_ADDRESS", "EVALFLEET_SANDBOXD_ADDRESS", "allow_remote",
	} {
		require.ErrorContains(t, err, name)
	}
}

func TestUnknownKeysAreFaults(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("agentorch:\n  max_generate: 5\n"), 0o600))
	err := run(t.Context(), map[string]string{"EVALFLEET_CONFIG": file}, nil)
	require.ErrorContains(t, err, "max_generate")
}

func TestServesAndStops(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokenFile := filepath.Join(dir, "token")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	env := map[string]string{
		"EVALFLEET_LISTEN": "127.0.0.1:0", "EVALFLEET_DATA_DIR": dir, "EVALFLEET_TOKEN_FILE": tokenFile, "EVALFLEET_LOG_LEVEL": "error",
		"EVALFLEET_MODELGW_ADDRESS": "127.0.0.1:1", "EVALFLEET_TOOLEXEC_ADDRESS": "127.0.0.1:1", "EVALFLEET_SANDBOXD_ADDRESS": "127.0.0.1:1",
	}
	serving := make(chan net.Addr, 1)
	go func() { done <- run(ctx, env, func(address net.Addr) { serving <- address }) }()
	address := (<-serving).String()
	conn, err := grpcclient.New(address, grpcclient.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()

	health, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: agentv1.RunService_ServiceDesc.ServiceName})
	require.NoError(t, err)
	assert.Equal(t, healthv1.HealthCheckResponse_SERVING, health.GetStatus())
	list := &agentv1.ListRunsRequest{Parent: "projects/default"}
	_, err = agentv1.NewRunServiceClient(conn).ListRuns(t.Context(), list)
	assert.Equal(t, codes.Unauthenticated, rpcerr.Code(err))
	require.ErrorContains(t, err, tokenFile)

	token, err := auth.TokenFile(tokenFile)
	require.NoError(t, err)
	known, err := grpcclient.New(address, grpcclient.Options{Token: token})
	require.NoError(t, err)
	defer func() { require.NoError(t, known.Close()) }()
	answer, err := agentv1.NewRunServiceClient(known).ListRuns(t.Context(), list)
	require.NoError(t, err)
	assert.Empty(t, answer.GetRuns())

	stop()
	require.NoError(t, <-done)
}
