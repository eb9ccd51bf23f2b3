package local

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAContainersProcessesStepAside(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	mount, err := detachedMount(unified)
	require.NoError(t, err)
	t.Cleanup(func() { mount.Close() })
	tree := "/proc/self/fd/" + strconv.Itoa(int(mount.Fd()))
	own, err := ownGroups()
	require.NoError(t, err)
	top := filepath.Join(tree, own[unified], "evalfleet-test-"+strconv.Itoa(os.Getpid()))
	aside := filepath.Join(top, groupFolder+"-host")
	require.NoError(t, os.Mkdir(top, 0o755))
	var others []*exec.Cmd
	for range 3 {
		cmd := exec.CommandContext(context.Background(), "sleep", "1000")
		require.NoError(t, cmd.Start())
		others = append(others, cmd)
		require.NoError(t, put(filepath.Join(top, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid)))
	}
	t.Cleanup(func() {
		for _, cmd := range others {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		assert.NoError(t, os.Remove(aside))
		assert.NoError(t, os.Remove(top))
	})
	require.ErrorIs(t, stepAside(top, true, func(string) error { return unix.EBUSY }), unix.EBUSY)
	assert.Len(t, processes(t, top), 3, "they come back where it does not help")
	assert.NoDirExists(t, aside)

	// As the kernel does for a group that has controllers to give, which this machine's may have given to version 1.
	enable := func(folder string) error {
		if len(processes(t, folder)) > 0 {
			return unix.EBUSY
		}
		return nil
	}
	require.NoError(t, stepAside(top, true, enable))
	assert.Len(t, processes(t, aside), 3)
}

// processes lists the processes of a group.
func processes(t *testing.T, group string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	require.NoError(t, err)
	return strings.Fields(string(data))
}
