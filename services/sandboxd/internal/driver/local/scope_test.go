package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAUserWithoutSystemdIsToldSo(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, enterScope(t.Context(), t.TempDir()), errNoManager)
}

// Whatever is wrong with a systemd that is there, creating a sandbox does not hang on it.
func TestASystemdThatDoesNotAnswerIsNamed(t *testing.T) {
	t.Parallel()
	runtime := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(runtime, "bus"), nil, 0o600))
	require.ErrorContains(t, enterScope(t.Context(), runtime), "ask systemd for a scope")
}
