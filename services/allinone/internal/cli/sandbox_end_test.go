package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

func TestOutputThatWasLostIsAFailure(t *testing.T) {
	t.Parallel()
	require.NoError(t, execEnd(&sandboxv1.ExecResult{}, 0))
	err := execEnd(&sandboxv1.ExecResult{}, 7)
	require.ErrorContains(t, err, "7 bytes of the output are missing")
	assert.Equal(t, exitFailed, exitCode(err))
	assert.Equal(t, 9, exitCode(execEnd(&sandboxv1.ExecResult{ExitCode: new(int32(9))}, 7)), "the program's own code, if it failed")
}
