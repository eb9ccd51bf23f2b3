package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/daemon/daemontest"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	err := daemontest.Refused(t, &configuration{}, map[string]string{"EVALFLEET_LISTEN": "0.0.0.0:1"}, "")
	for _, name := range []string{
		"EVALFLEET_DATA_DIR", "EVALFLEET_TOKEN_FILE", "EVALFLEET_MODELGW_ADDRESS", "EVALFLEET_TOOLEXEC_ADDRESS", "EVALFLEET_SANDBOXD_ADDRESS", "allow_remote",
	} {
		require.ErrorContains(t, err, name)
	}
}

func TestUnknownKeysAreFaults(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, daemontest.Refused(t, &configuration{}, nil, "agentorch:\n  max_generate: 5\n"), "max_generate")
}

func TestServesAndStops(t *testing.T) {
	t.Parallel()
	program := daemontest.Start(t, &configuration{}, map[string]string{
		"EVALFLEET_MODELGW_ADDRESS": "127.0.0.1:1", "EVALFLEET_TOOLEXEC_ADDRESS": "127.0.0.1:1", "EVALFLEET_SANDBOXD_ADDRESS": "127.0.0.1:1",
	})
	program.AssertServing(agentv1.RunService_ServiceDesc.ServiceName)
	list := &agentv1.ListRunsRequest{Parent: "projects/default"}
	_, err := agentv1.NewRunServiceClient(program.Stranger()).ListRuns(t.Context(), list)
	assert.Equal(t, codes.Unauthenticated, rpcerr.Code(err))
	require.NotContains(t, err.Error(), program.TokenFile, "where the token is concerns no stranger")
	answer, err := agentv1.NewRunServiceClient(program.Known()).ListRuns(t.Context(), list)
	require.NoError(t, err)
	assert.Empty(t, answer.GetRuns())
}
