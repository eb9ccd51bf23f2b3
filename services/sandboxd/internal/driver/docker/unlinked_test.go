package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// An engine in a container names that before its own containers.
func TestWhichContainerAProcessIsOf(t *testing.T) {
	t.Parallel()
	outer, inner := strings.Repeat("a", 64), strings.Repeat("b", 64)
	known := map[string]bool{inner: true}
	assert.Equal(t, inner, containerOf("4:memory:/docker/"+inner+"\n", known))
	assert.Equal(t, inner, containerOf("4:memory:/docker/"+outer+"/docker/"+inner+"\n", known))
	assert.Equal(t, inner, containerOf("0::/system.slice/docker-"+inner+".scope\n", known))
	assert.Empty(t, containerOf("4:memory:/docker/"+outer+"\n", known))
	assert.Empty(t, containerOf("0::/\n", known))
}

// What is looked at is bounded, in number and in time. A folder stands for that of a process.
func TestTheSearchForRemovedFilesIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 30 {
		require.NoError(t, os.Symlink("/dev/null", filepath.Join(dir, strconv.Itoa(i))))
	}
	for most, full := range map[int]bool{30: false, 29: true} {
		r := &removed{files: map[file]int64{}, most: most}
		r.add(t.Context(), dir+"/")
		assert.Equal(t, full, r.full())
		assert.Zero(t, r.bytes())
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	r := &removed{files: map[file]int64{}, most: 30}
	assert.Zero(t, r.add(over, dir+"/"))
	_, err := unlinked(over, map[string]bool{strings.Repeat("a", 64): true}, 30)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAThreadsOwnDescriptorsAreLookedAt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const size = 1 << 20
	opened, measured := make(chan error), make(chan struct{})
	go func() {
		defer close(opened)
		runtime.LockOSThread() // and never unlocked: the thread ends
		if err := unix.Unshare(unix.CLONE_FILES); err != nil {
			opened <- err
			return
		}
		path := filepath.Join(dir, "removed")
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR, 0o600)
		if err == nil {
			_, err = unix.Write(fd, make([]byte, size))
		}
		opened <- errors.Join(err, unix.Fsync(fd), unix.Unlink(path))
		<-measured
	}()
	require.NoError(t, waittest.For(t, opened, "a file of a thread's own"))
	defer func() {
		close(measured)
		_ = waittest.For(t, opened, "the end of the thread")
	}()
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &fs))
	if fs.Type == unix.TMPFS_MAGIC {
		t.Skip("SKIP: temporary files are in memory here, which is not counted as written")
	}
	r := &removed{files: map[file]int64{}, most: mostLinks}
	r.addProcess(t.Context(), "/proc/self")
	assert.GreaterOrEqual(t, r.bytes(), int64(size))
}
