package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/daemon/daemontest"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	err := daemontest.Refused(t, &configuration{}, map[string]string{"EVALFLEET_LISTEN": "0.0.0.0:1"}, "")
	for _, name := range []string{"EVALFLEET_DATA_DIR", "EVALFLEET_TOKEN_FILE", "EVALFLEET_SANDBOXD_ADDRESS", "allow_remote"} {
		require.ErrorContains(t, err, name)
	}
}

func TestUnknownKeysAreFaults(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, daemontest.Refused(t, &configuration{}, nil, "toolexec:\n  call_timeot: 5s\n"), "call_timeot")
}

func TestServesAndStops(t *testing.T) {
	t.Parallel()
	program := daemontest.Start(t, &configuration{}, map[string]string{"EVALFLEET_SANDBOXD_ADDRESS": "127.0.0.1:1"})
	program.AssertServing(toolv1.ToolService_ServiceDesc.ServiceName)
	_, err := toolv1.NewToolServiceClient(program.Stranger()).ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: "projects/default"})
	assert.Equal(t, codes.Unauthenticated, rpcerr.Code(err))
	require.NotContains(t, err.Error(), program.TokenFile, "where the token is concerns no stranger")
}
