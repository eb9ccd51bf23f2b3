package docker

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

func TestEntriesAreCounted(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	for i := range 600 {
		require.NoError(t, os.WriteFile(filepath.Join(elsewhere, strconv.Itoa(i)), nil, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
	}
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "link")))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "b", "c"), nil, 0o600))
	open := func() int {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		return fd
	}
	n, err := entries(t.Context(), open(), 10_000)
	require.NoError(t, err)
	assert.EqualValues(t, 604, n)
	n, err = entries(t.Context(), open(), 100)
	require.NoError(t, err)
	assert.Greater(t, n, int64(100))
	assert.Less(t, n, int64(604), "what is over the bound is not counted on")

	require.NoError(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", deepestEntry+1)), 0o700))
	_, err = entries(t.Context(), open(), 10_000)
	require.ErrorIs(t, err, errTooDeep)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = entries(ctx, open(), 10_000)
	require.ErrorIs(t, err, context.Canceled)
}

// An engine may have mounts of its own for its storage, which the process that starts a container sees.
func TestALayerIsSeenByWhoStartsTheContainer(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounts take root")
	}
	dir := t.TempDir()
	starter := exec.Command("sh", "-c", `mount -t tmpfs tmpfs "$1" && mkdir "$1/layer" && touch "$1/layer/a" "$1/layer/b" || exit
		sh -c 'echo $$; read end' <&3`, "sh", dir)
	starter.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	ends, end, err := os.Pipe()
	require.NoError(t, err)
	starter.ExtraFiles = []*os.File{ends}
	out, err := starter.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, starter.Start())
	require.NoError(t, ends.Close())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)

	require.NoDirExists(t, filepath.Join(dir, "layer"), "it is not seen here")
	fd, err := openSeenBy(child, filepath.Join(dir, "layer"))
	require.NoError(t, err)
	n, err := entries(t.Context(), fd, 100)
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
	_, err = openSeenBy(child, filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, end.Close())
	require.Error(t, starter.Wait(), "its input has ended")
	_, err = openSeenBy(child, filepath.Join(dir, "layer"))
	require.ErrorIs(t, err, os.ErrNotExist, "the process has ended")
}

func TestABoxWhoseFilesAreNotCountedSaysSo(t *testing.T) {
	t.Parallel()
	weaker := func(writes disk) string {
		return strings.Join((&Driver{}).report(driver.Spec{}, settings{}, facts{storage: entriesStorage}, writes).Isolation.Weaker, "; ")
	}
	assert.Contains(t, weaker(diskBytesMeasured), "the number of files")
	assert.NotContains(t, weaker(diskBytesMeasured), "removed files")
	assert.NotContains(t, weaker(diskMeasured), "the number of files")
}

// counting is an engine of two containers whose layers are folders here. It counts the requests for them.
func counting(t *testing.T) (e *engine, inspected *atomic.Int32) {
	t.Helper()
	inspected = &atomic.Int32{}
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "1", "2", "3"), 0o700))
	}
	socket, err := os.MkdirTemp("", "fake-") //nolint:usetesting // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(socket) })
	l, err := net.Listen("unix", filepath.Join(socket, "d.sock"))
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			_, _ = fmt.Fprintf(w, `[{"Id": "a", "SizeRw": 10, "Labels": {%[1]q: "box-a"}}, {"Id": "b", "SizeRw": 10, "Labels": {%[1]q: "box-b"}}]`, labelBox)
		case strings.HasSuffix(r.URL.Path, "/json"):
			inspected.Add(1)
			id := filepath.Base(filepath.Dir(r.URL.Path))
			_, _ = fmt.Fprintf(w, `{"State": {"Pid": %d}, "GraphDriver": {"Name": %q, "Data": {"UpperDir": %q}}}`, os.Getpid(), entriesStorage, filepath.Join(dir, id))
		}
	}))
	server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	e, err = newEngine("unix://" + l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.close()) })
	return e, inspected
}

func TestWhereALayerLiesIsAskedForOnce(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("the root of another process takes root to open")
	}
	e, inspected := counting(t)
	bounds := map[string]int64{"box-a": 1 << 20, "box-b": 1 << 20}
	for range 3 {
		out, late, err := e.written(t.Context(), "o", nil, bounds)
		require.NoError(t, err)
		assert.Empty(t, late)
		assert.Equal(t, map[string]writing{"box-a": {bytes: 10 + 3*entryBytes}, "box-b": {bytes: 10 + 3*entryBytes}}, out)
	}
	assert.EqualValues(t, 2, inspected.Load())
	e.forget(nil)
	assert.Empty(t, e.places)
}

// Each container has a time of its own, and those for which it was too short are named. Their bytes count all the same.
func TestWhatIsNotCountedInTimeIsNamed(t *testing.T) {
	t.Parallel()
	e, _ := counting(t)
	e.countTime = 1
	out, late, err := e.written(t.Context(), "o", nil, map[string]int64{"box-a": 1 << 20, "box-b": 1 << 20})
	require.NoError(t, err)
	assert.Equal(t, []string{"box-a", "box-b"}, late)
	assert.Equal(t, map[string]writing{"box-a": {bytes: 10}, "box-b": {bytes: 10}}, out)
}
