package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/daemon/daemontest"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

func TestWhatIsMissingOrUnknownIsNamed(t *testing.T) {
	t.Parallel()
	err := daemontest.Refused(t, &configuration{}, map[string]string{"EVALFLEET_LISTEN": "0.0.0.0:1", "EVALFLEET_SANDBOXD_DRIVER": "dokcer"}, "")
	for _, name := range []string{"EVALFLEET_DATA_DIR", "EVALFLEET_TOKEN_FILE", "allow_remote", "dokcer"} {
		require.ErrorContains(t, err, name)
	}
	require.ErrorContains(t, daemontest.Refused(t, &configuration{}, nil, "sandboxd:\n  max_sandboxs: 5\n"), "max_sandboxs")
}

// It serves without a guest program too.
func TestServesAndStops(t *testing.T) {
	t.Parallel()
	program := daemontest.Start(t, &configuration{}, map[string]string{"EVALFLEET_SANDBOXD_GUEST_PATH": filepath.Join(t.TempDir(), "no-guest")})
	program.AssertServing(sandboxv1.SandboxService_ServiceDesc.ServiceName)
	_, err := sandboxv1.NewSandboxServiceClient(program.Stranger()).ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{Parent: "projects/default"})
	assert.Equal(t, codes.Unauthenticated, rpcerr.Code(err))
	require.NotContains(t, err.Error(), program.TokenFile, "where the token is concerns no stranger")
}
