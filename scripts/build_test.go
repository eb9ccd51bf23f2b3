package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A build says that the program is ready only when it is. One that fails prints go's error and fails, too.
func TestBuildIsReadyOnlyWhenItSucceeded(t *testing.T) {
	t.Parallel()
	checkout, tools := t.TempDir(), t.TempDir()
	script, err := os.ReadFile("build.sh")
	require.NoError(t, err)
	write(t, filepath.Join(checkout, "scripts/build.sh"), string(script))
	write(t, filepath.Join(tools, "go"), `#!/bin/sh
[ "$1" = build ] || exit 0
echo example.org/compiled
case "$*" in *"/cmd/$FAILS") echo "main.go:1:1: fault of $FAILS"; exit 1 ;; esac`)
	for _, fails := range []string{"", "guestd", "evalfleet"} {
		t.Run("fails: "+fails, func(t *testing.T) {
			t.Parallel()
			bin := t.TempDir()
			build := exec.CommandContext(t.Context(), filepath.Join(checkout, "scripts/build.sh"), bin)
			build.Env = []string{"PATH=" + tools + ":/usr/bin:/bin", "FAILS=" + fails}
			out, err := build.CombinedOutput()
			if fails == "" {
				require.NoError(t, err, string(out))
				assert.Contains(t, string(out), bin+"/evalfleet is ready")
				return
			}
			assert.ErrorContains(t, err, "exit status 1", string(out))
			assert.Contains(t, string(out), "fault of "+fails)
			assert.NotContains(t, string(out), "ready")
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
}
