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

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// run runs the program in an environment of its own.
func run(ctx context.Context, env map[string]string, ready func(net.Addr), args ...string) error {
	return daemon.Run(ctx, daemon.Command{
		Args: args, Env: func(name string) (string, bool) { value, ok := env[name]; return value, ok }, Stderr: io.Discard, Ready: ready,
	}, &configuration{})
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), map[string]string{"EVALFLEET_LISTEN": "0.0.0.0:1"}, nil)
	for _, name := range []string{"EVALFLEET_DATA_DIR", "EVALFLEET_TOKEN_FILE", "allow_remote"} {
		require.ErrorContains(t, err, name)
	}
}

func TestUnknownKeysAreFaults(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("modelgw:\n  attempt_timeot: 5s\n"), 0o600))
	err := run(t.Context(), map[string]string{"EVALFLEET_CONFIG": file}, nil)
	require.ErrorContains(t, err, "attempt_timeot")
}

func TestServesAndStops(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	tokenFile := filepath.Join(dir, "token")
	env := map[string]string{
		"EVALFLEET_LISTEN": "127.0.0.1:0", "EVALFLEET_DATA_DIR": dir, "EVALFLEET_TOKEN_FILE": tokenFile, "EVALFLEET_LOG_LEVEL": "error",
	}
	serving := make(chan net.Addr, 1)
	go func() { done <- run(ctx, env, func(address net.Addr) { serving <- address }) }()
	address := (<-serving).String()
	stranger, err := grpcclient.New(address, grpcclient.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, stranger.Close()) }()
	health, err := healthv1.NewHealthClient(stranger).Check(t.Context(), &healthv1.HealthCheckRequest{Service: modelv1.ModelService_ServiceDesc.ServiceName})
	require.NoError(t, err)
	assert.Equal(t, healthv1.HealthCheckResponse_SERVING, health.GetStatus())
	_, err = modelv1.NewModelServiceClient(stranger).ListProviders(t.Context(), &modelv1.ListProvidersRequest{})
	assert.Equal(t, codes.Unauthenticated, rpcerr.Code(err))
	require.ErrorContains(t, err, tokenFile)

	token, err := auth.ReadToken(tokenFile)
	require.NoError(t, err)
	conn, err := grpcclient.New(address, grpcclient.Options{Token: token})
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	ref, err := blobv1.NewBlobServiceClient(conn).PutBlob(t.Context(), &blobv1.PutBlobRequest{
		Parent: "projects/default", Content: []byte(`{"sample": "a", "output": "from the store"}`),
	})
	require.NoError(t, err)
	answer, err := modelv1.NewModelServiceClient(conn).Generate(t.Context(), &modelv1.GenerateRequest{
		Parent: "projects/default", RequestId: "k", Model: "mockllm/model", ModelArgsJson: `{"script": "blob:` + ref.GetHash() + `"}`,
		Messages: []*modelv1.ChatMessage{chat.User("q")}, Attribution: attribution("a"),
	})
	require.NoError(t, err)
	assert.Equal(t, "from the store", answer.GetOutput().GetCompletion())
	_, err = modelv1.NewModelServiceClient(conn).Generate(t.Context(), &modelv1.GenerateRequest{
		Parent: "projects/other", Model: "mockllm/model", ModelArgsJson: `{"script": "blob:` + ref.GetHash() + `"}`,
	})
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err), "another project's body is not there: %v", err)

	stop()
	require.NoError(t, <-done)
}

func attribution(sample string) *effectv1.Attribution { return &effectv1.Attribution{Sample: sample} }
