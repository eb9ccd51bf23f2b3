package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
)

// withoutBirths tells a test program that was started by another to do without births.
const withoutBirths = "EVALFLEET_TEST_WITHOUT_BIRTHS"

func TestAllHoldsWhereTheKernelKnowsNoBirths(t *testing.T) {
	if os.Getenv(withoutBirths) != "" {
		return // this is that program
	}
	self, err := os.Executable()
	require.NoError(t, err)
	said, err := os.Create(filepath.Join(t.TempDir(), "output"))
	require.NoError(t, err)
	defer said.Close()
	c := command(t, self, self)
	c.Env = append(os.Environ(), withoutBirths+"=1")
	c.Files[1], c.Files[2] = said.Fd(), said.Fd()
	p, err := start(c)
	require.NoError(t, err)
	<-p.Done()
	text, err := os.ReadFile(said.Name())
	require.NoError(t, err)
	assert.Zero(t, p.Status().ExitStatus(), string(text))
}

func TestProgramsBeginWithNoSignalBlocked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "signals")
	p, err := start(command(t, "/bin/sh", "sh", "-c", "exec grep -E 'Sig(Blk|Ign)' /proc/self/status >"+file))
	require.NoError(t, err)
	<-p.Done()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "SigBlk: 0000000000000000 SigIgn: "+ignoredHere(t), strings.Join(strings.Fields(string(text)), " "))
}

// ignoredHere gives the signals that this program ignores, which its children inherit: SIGPIPE by TestMain, and what it inherited itself.
func ignoredHere(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(status), "SigIgn:\t")
	require.True(t, found)
	mask, _, _ := strings.Cut(rest, "\n")
	return mask
}

func TestAStartThatFailsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	c := sh(t, "exit 0")
	c.Dir = "/no/such/folder"
	_, err := start(c)
	require.ErrorIs(t, err, syscall.ENOENT)
	c = sh(t, "exit 0")
	c.Argv = append(c.Argv, strings.Repeat("x", 4<<20))
	_, err = start(c)
	require.ErrorIs(t, err, syscall.E2BIG)
	c = sh(t, "exit 0")
	c.Env = []string{"A=\x00"}
	_, err = start(c)
	require.ErrorIs(t, err, syscall.EINVAL)
}

func TestTheWayOfStartingIsTheOneThatWasAskedFor(t *testing.T) {
	t.Parallel()
	known := make(chan bool, 1)
	table.Start(process.Command{Path: "/no/such"}, func(*process.Process, error) { known <- table.KnowsBirths() })
	assert.Equal(t, os.Getenv(withoutBirths) == "", <-known, "births came with Linux 5.5")
}
