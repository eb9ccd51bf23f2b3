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

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
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
	parent := filepath.Join(tree, own[unified])
	kernel := enable(tree) == nil // the machine's root may give its children controllers, whatever is in it
	if kernel {
		parent = tree
	}
	top := filepath.Join(parent, "evalfleet-test-"+strconv.Itoa(os.Getpid()))
	below := filepath.Join(top, aside)
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
		assert.NoError(t, os.Remove(below))
		assert.NoError(t, os.Remove(top))
	})
	require.ErrorIs(t, stepAside(top, true, func(string) error { return unix.EBUSY }), unix.EBUSY)
	assert.Len(t, processes(t, top), 3, "they come back where it does not help")
	assert.NoDirExists(t, below)

	give := enable
	if !kernel {
		t.Log("version 1 has this machine's controllers; a function does as the kernel would")
		give = func(folder string) error {
			if len(processes(t, folder)) > 0 {
				return unix.EBUSY
			}
			return nil
		}
	}
	require.ErrorIs(t, give(top), unix.EBUSY, "a group with processes has no controllers to give")
	require.NoError(t, stepAside(top, true, give))
	assert.Len(t, processes(t, below), 3)
	if kernel {
		given, err := os.ReadFile(filepath.Join(below, "cgroup.controllers"))
		require.NoError(t, err)
		assert.Subset(t, strings.Fields(string(given)), []string{"memory", "pids"})
	}
}

func TestBoxesStayOnOneLevel(t *testing.T) {
	t.Parallel()
	for own, want := range map[string]string{"/": "/", "/a": "/a", "/a/evalfleet-host": "/a", "/evalfleet-host": "/", "/a/evalfleet-host/b": "/a/evalfleet-host/b"} {
		assert.Equal(t, want, hierarchy{own: own}.above(), own)
	}
}

// processes lists the processes of a group.
func processes(t *testing.T, group string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	require.NoError(t, err)
	return strings.Fields(string(data))
}

// Folders represent the groups of a kernel that counts them, and of one that does not.
func TestWhereBuffersOfSocketsAreNotCountedABoxSaysSo(t *testing.T) {
	t.Parallel()
	for name, counted := range map[string]bool{"counted": true, "not counted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files := []string{"memory.limit_in_bytes"}
			if counted {
				files = append(files, "memory.kmem.tcp.limit_in_bytes")
			}
			work, guest := filepath.Join(dir, workGroup), filepath.Join(dir, guestGroup)
			for _, folder := range []string{work, guest} {
				require.NoError(t, os.Mkdir(folder, 0o755))
				for _, file := range files {
					require.NoError(t, os.WriteFile(filepath.Join(folder, file), nil, 0o600))
				}
			}
			g := &group{}
			require.NoError(t, g.boundMemoryV1(work, guest, share{Limits: driver.Limits{MemoryBytes: 1 << 20}, guestBytes: 1 << 20}))
			said := strings.Join(g.weaker, "; ")
			assert.Equal(t, !counted, strings.Contains(said, "buffers of TCP sockets are not bounded"), said)
		})
	}
}
