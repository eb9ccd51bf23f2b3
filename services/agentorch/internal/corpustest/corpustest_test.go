package corpustest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/corpustest"
)

// What is recorded stays: an update adds files and changes none, and states alone may be replaced where that is asked
// for.
func TestARecordedFileIsNotChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	check := func(add, replace bool, faults ...string) {
		t.Helper()
		err := corpustest.CheckSums(dir, add, replace)
		if len(faults) == 0 {
			require.NoError(t, err)
			return
		}
		for _, fault := range faults {
			require.ErrorContains(t, err, fault)
		}
	}
	write("a.jsonl", "a")
	write("a.states.jsonl", "states")
	check(false, false, "a.jsonl has no sum", "a.states.jsonl has no sum")
	check(true, false)
	check(false, false)
	write("a.states.jsonl", "other")
	check(false, false, "a.states.jsonl has changed")
	check(true, false, "a.states.jsonl has changed")
	check(false, true)
	check(false, false)
	write("a.jsonl", "b")
	check(true, true, "a.jsonl has changed")
	write("a.jsonl", "a")
	require.NoError(t, os.Remove(filepath.Join(dir, "a.states.jsonl")))
	check(true, true, "a.states.jsonl was recorded and is missing")
	write("SHA256SUMS", "nonsense\n")
	err := corpustest.CheckSums(dir, false, false)
	assert.ErrorContains(t, err, `"nonsense\n" is no sum`)
}
