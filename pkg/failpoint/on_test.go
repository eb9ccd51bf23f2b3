//go:build failpoint

package failpoint

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHitKills runs itself as the process that is to die.
func TestHitKills(t *testing.T) {
	if os.Getenv("EVALFLEET_FAILPOINT") != "" { //nolint:forbidigo // the child
		for range 3 {
			Hit("a/other")
			Hit("a/place")
		}
		return
	}
	once := filepath.Join(t.TempDir(), "once")
	run := func() error {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHitKills$")
		child.Env = append(os.Environ(), "EVALFLEET_FAILPOINT=a/place=2", "EVALFLEET_FAILPOINT_ONCE="+once)
		return child.Run()
	}
	var exit *exec.ExitError
	require.ErrorAs(t, run(), &exit)
	assert.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
	assert.NoError(t, run(), "the second process finds the file and goes on")
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"a=", "a=0", "a=x"} {
		_, err := parse(text)
		assert.Error(t, err, text)
	}
}
