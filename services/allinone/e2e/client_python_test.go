package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The example client in Python is generated from the protocol as its README describes, and runs an evaluation to its
// end.
func TestTheClientInPython(t *testing.T) {
	t.Parallel()
	python, err := filepath.Abs(filepath.Join(repository, ".tools/venv-client/bin/python"))
	require.NoError(t, err)
	if !exists(python) {
		t.Skip("the packages of the client in Python are not there; make setup fetches them")
	}
	example := filepath.Join(repository, "examples/client-python")
	code := t.TempDir()
	out, err := exec.CommandContext(t.Context(), filepath.Join(example, "generate.sh"), python, code).CombinedOutput()
	require.NoError(t, err, string(out))

	h := newHome(t, &shipped, single)
	h.serve()
	client := exec.CommandContext(t.Context(), python, filepath.Join(example, "client.py"), "mockllm/model")
	client.Env = []string{
		"PATH=" + os.Getenv("PATH"), "PYTHONPATH=" + code, "PYTHONDONTWRITEBYTECODE=1", "EVALFLEET_ADDRESS=" + h.address(), "EVALFLEET_TOKEN=" + h.token(),
	}
	out, err = client.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Regexp(t, `(?s)^projects/default/evals/\S+\n(.*\n)?2 of 2 samples done\nEVAL_STATE_SUCCEEDED \nincludes accuracy 0\.000\n`, string(out))
}
