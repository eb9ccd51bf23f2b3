package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/threadtest"
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

// The search is bounded, in number and in time. A folder represents that of a process.
func TestTheSearchForRemovedFilesIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 30 {
		require.NoError(t, os.Symlink("/dev/null", filepath.Join(dir, strconv.Itoa(i))))
	}
	for most, full := range map[int]bool{30: false, 29: true} {
		r := &removed{files: map[file]int64{}, most: most, left: waittest.Bound}
		r.add(t.Context(), dir+"/")
		assert.Equal(t, full, r.full())
		assert.Zero(t, r.bytes())
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	r := &removed{files: map[file]int64{}, most: 30, left: waittest.Bound}
	assert.Zero(t, r.add(over, dir+"/"))
	r = &removed{files: map[file]int64{}, most: mostLinks, left: 1}
	for range 2 { // The first one uses all of the time.
		r.addProcess(t.Context(), "/proc/self")
		assert.True(t, r.full())
		assert.Zero(t, r.links)
	}
	_, err := unlinked(over, map[string]bool{strings.Repeat("a", 64): true}, 30)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAThreadsOwnDescriptorsAreLookedAt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const size = 1 << 20
	opened, measured := make(chan error), make(chan struct{})
	threadtest.Go(func() {
		defer close(opened)
		if err := unix.Unshare(unix.CLONE_FILES); err != nil {
			opened <- err
			return
		}
		path := filepath.Join(dir, "removed")
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR, 0o600)
		if err == nil {
			data := make([]byte, size)
			_, _ = rand.Read(data) // A file system may store zeros in no space.
			_, err = unix.Write(fd, data)
		}
		opened <- errors.Join(err, unix.Fsync(fd), unix.Unlink(path))
		<-measured
	})
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
	r := &removed{files: map[file]int64{}, most: mostLinks, left: waittest.Bound}
	r.addProcess(t.Context(), "/proc/self")
	assert.GreaterOrEqual(t, r.bytes(), int64(size))
}

func TestWhatThreadsShareIsLookedAtOnce(t *testing.T) {
	t.Parallel()
	if !shareFiles(unix.Getpid(), unix.Getpid()) {
		t.Skip("SKIP: the kernel does not say which threads share their descriptors")
	}
	const files, threads = 100, 50
	for range files {
		f, err := os.Open(os.DevNull)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
	}
	measured := make(chan struct{})
	var began, ended sync.WaitGroup
	for range threads {
		began.Add(1)
		ended.Go(func() {
			runtime.LockOSThread() // and never unlocked: the thread ends
			began.Done()
			<-measured
		})
	}
	began.Wait()
	defer ended.Wait()
	defer close(measured)
	r := &removed{files: map[file]int64{}, most: mostLinks, left: waittest.Bound}
	r.addProcess(t.Context(), "/proc/self")
	assert.GreaterOrEqual(t, r.links, files)
	assert.Less(t, r.links, threads*files/2)
}
