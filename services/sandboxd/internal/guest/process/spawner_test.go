package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
)

// without passes the features to do without to a test program that another one started.
const without = "EVALFLEET_TEST_WITHOUT"

func TestAllHoldsWhereTheKernelLacksCalls(t *testing.T) {
	if os.Getenv(without) != "" {
		return // this is that program
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for _, lacking := range []string{"clone3", "openat2"} {
		said, err := os.Create(filepath.Join(t.TempDir(), "output"))
		require.NoError(t, err)
		defer said.Close()
		c := command(t, self, self)
		c.Env = append(os.Environ(), without+"="+lacking)
		c.Files[1], c.Files[2] = said.Fd(), said.Fd()
		p, err := start(c)
		require.NoError(t, err)
		select {
		case <-p.Done():
		case <-time.After(5 * waittest.Bound):
			require.FailNow(t, "the tests do not end", "without %s", lacking)
		}
		text, err := os.ReadFile(said.Name())
		require.NoError(t, err)
		assert.Zero(t, p.Status().ExitStatus(), "without %s: %s", lacking, text)
	}
}

func TestAProgramHasThreeDescriptors(t *testing.T) {
	t.Parallel()
	root, err := os.Open("/")
	require.NoError(t, err)
	defer root.Close()
	open, err := unix.FcntlInt(root.Fd(), unix.F_DUPFD, 100) // inherited, unless something is done about it
	require.NoError(t, err)
	defer unix.Close(open)
	said, err := os.Create(filepath.Join(t.TempDir(), "descriptors"))
	require.NoError(t, err)
	defer said.Close()
	c := command(t, "/bin/ls", "ls", "/proc/self/fd")
	c.Files[1] = said.Fd()
	p, err := start(c)
	require.NoError(t, err)
	waittest.For(t, p.Done(), "the end of the program")
	text, err := os.ReadFile(said.Name())
	require.NoError(t, err)
	assert.Equal(t, "0 1 2 3", strings.Join(strings.Fields(string(text)), " "), "and the folder that it lists")
}

func TestNoWorkingDirectoryIsReachedByADescriptor(t *testing.T) {
	t.Parallel()
	root, err := os.Open("/")
	require.NoError(t, err)
	defer root.Close()
	link := filepath.Join(t.TempDir(), "link")
	through := fmt.Sprintf("/proc/self/fd/%d", root.Fd())
	require.NoError(t, os.Symlink(through+"/usr", link))
	for _, dir := range []string{through, through + "/usr", link, "/proc/self/fd/0", "/proc/self/fd/3"} {
		c := sh(t, "exit 0")
		c.Dir = dir
		_, err := start(c)
		require.Error(t, err, dir) // it is not there any more, or is refused
	}
}

func TestHandlersAreNotInherited(t *testing.T) {
	t.Parallel()
	// Programs end of a signal that this one handles.
	p, err := start(sh(t, "kill -URG $$; kill -INT $$; kill -USR1 $$; exit 3"))
	require.NoError(t, err)
	waittest.For(t, p.Done(), "the end of the program")
	assert.True(t, p.Status().Signaled())
}

func TestProgramsBeginWithNoSignalBlocked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "signals")
	p, err := start(command(t, "/bin/sh", "sh", "-c", "exec grep -E 'Sig(Blk|Ign)' /proc/self/status >"+file))
	require.NoError(t, err)
	waittest.For(t, p.Done(), "the end of the program")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "SigBlk: 0000000000000000 SigIgn: "+ignoredHere(t), strings.Join(strings.Fields(string(text)), " "))
}

// ignoredHere returns the signals that this program ignores, which its children inherit: SIGPIPE by TestMain, and
// inherited ones.
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
	clone3, openat2 := spawnFeatures(t)
	assert.Equal(t, os.Getenv(without) != "clone3", clone3, "it came with Linux 5.5")
	assert.Equal(t, os.Getenv(without) != "openat2", openat2, "it came with Linux 5.6")
}

// spawnFeatures returns how processes are started.
func spawnFeatures(t *testing.T) (clone3, openat2 bool) {
	t.Helper()
	known := make(chan struct{})
	table.Start(process.Command{Path: "/no/such"}, func(*process.Process, error) {
		clone3, openat2 = table.Way()
		close(known)
	})
	waittest.For(t, known, "the answer of the table")
	return clone3, openat2
}
