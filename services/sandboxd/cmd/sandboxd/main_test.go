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
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/daemon"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// run runs the program in an environment of its own.
func run(ctx context.Context, env map[string]string, ready func(net.Addr), args ...string) error {
	return daemon.Run(ctx, daemon.Command{
		Args: args, Env: func(name string) (string, bool) { value, ok := env[name]; return value, ok }, Stderr: io.Discard, Ready: ready,
	}, &configuration{})
}

func TestWhatIsMissingOrUnknownIsNamed(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), map[string]string{"EVALFLEET_LISTEN": "0.0.0.0:1", "EVALFLEET_SANDBOXD_DRIVER": "dokcer"}, nil)
	for _, name := range []string{"EVALFLEET_DATA_DIR", "EVALFLEET_TOKEN_FILE", "allow_remote", "dokcer"} {
		require.ErrorContains(t, err, name)
	}
	file := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("sandboxd:\n  max_sandboxs: 5\n"), 0o600))
	require.ErrorContains(t, run(t.Context(), nil, nil, "-config", file), "max_sandboxs")
}

func TestServesAndStops(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	env := map[string]string{
		"EVALFLEET_LISTEN": "127.0.0.1:0", "EVALFLEET_DATA_DIR": dir, "EVALFLEET_TOKEN_FILE": filepath.Join(dir, "token"), "EVALFLEET_LOG_LEVEL": "error",
		"EVALFLEET_SANDBOXD_GUEST_PATH": filepath.Join(dir, "no-guest"),
	}
	serving := make(chan net.Addr, 1)
	go func() { done <- run(ctx, env, func(address net.Addr) { serving <- address }) }()
	conn, err := grpcclient.New((<-serving).String(), grpcclient.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()

	health, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: sandboxv1.SandboxService_ServiceDesc.ServiceName})
	require.NoError(t, err)
	assert.Equal(t, healthv1.HealthCheckResponse_SERVING, health.GetStatus(), "it serves without a guest program too")
	_, err = sandboxv1.NewSandboxServiceClient(conn).ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{Parent: "projects/default"})
	assert.Equal(t, codes.Unauthenticated, rpcerr.Code(err))
	require.ErrorContains(t, err, filepath.Join(dir, "token"))

	stop()
	require.NoError(t, <-done)
}
