package file_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/account"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/file"
)

func place(t *testing.T) file.Place {
	t.Helper()
	me, err := account.Lookup("")
	require.NoError(t, err)
	dir := t.TempDir()
	return file.Place{Workdir: dir, User: me}
}

func write(t *testing.T, p file.Place, path, content string, mode uint32) error {
	t.Helper()
	w, err := p.Create(path, mode)
	if err != nil {
		return err
	}
	_, err = w.Write([]byte(content))
	require.NoError(t, err)
	_, err = w.Commit()
	return err
}

func read(p file.Place, path string, offset, limit, maxBytes int64) (string, error) {
	r, err := p.Open(path, offset, limit, maxBytes)
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return string(data), err
}

func TestWriteThenReadGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	p := place(t)
	for path, content := range map[string]string{
		"a.txt": "x\r\ny\n", "deep/er/b": "\x00\xff", "with space": "", "/" + p.Workdir + "/abs": "1", "ünï": "ü",
	} {
		require.NoError(t, write(t, p, path, content, 0))
		got, err := read(p, path, 0, 0, 0)
		require.NoError(t, err)
		assert.Equal(t, content, got)
	}
	require.NoError(t, write(t, p, "a.txt", "new", 0))
	got, err := read(p, "a.txt", 0, 0, 0)
	require.NoError(t, err)
	assert.Equal(t, "new", got)
	names, err := filepath.Glob(p.Workdir + "/.evalfleet-*")
	require.NoError(t, err)
	assert.Empty(t, names, "nothing temporary stays")
}

func TestModeIsAsAskedElseAsItWas(t *testing.T) {
	t.Parallel()
	p := place(t)
	mode := func() os.FileMode {
		info, err := os.Stat(p.Workdir + "/f")
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	require.NoError(t, write(t, p, "f", "", 0))
	assert.Equal(t, os.FileMode(0o644), mode())
	require.NoError(t, write(t, p, "f", "", 0o755))
	assert.Equal(t, os.FileMode(0o755), mode())
	require.NoError(t, write(t, p, "f", "", 0))
	assert.Equal(t, os.FileMode(0o755), mode())
}

func TestWritingToALinkWritesItsTarget(t *testing.T) {
	t.Parallel()
	p := place(t)
	require.NoError(t, os.Symlink("target", p.Workdir+"/link"))
	require.NoError(t, os.Symlink("loop", p.Workdir+"/loop"))
	require.NoError(t, write(t, p, "link", "x", 0))
	got, err := os.ReadFile(p.Workdir + "/target")
	require.NoError(t, err)
	assert.Equal(t, "x", string(got))
	assert.True(t, rpcerr.Is(write(t, p, "loop", "x", 0), errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH))
}

func TestErrorsNameTheirReason(t *testing.T) {
	t.Parallel()
	p := place(t)
	require.NoError(t, unix.Mkfifo(p.Workdir+"/fifo", 0o644))
	require.NoError(t, os.Mkdir(p.Workdir+"/dir", 0o755))
	require.NoError(t, os.WriteFile(p.Workdir+"/file", []byte("12345"), 0o644))
	for name, tt := range map[string]struct {
		err  error
		want errorsv1.ErrorReason
	}{
		"read missing":      {second(read(p, "none", 0, 0, 0)), errorsv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND},
		"read folder":       {second(read(p, "dir", 0, 0, 0)), errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY},
		"read .":            {second(read(p, ".", 0, 0, 0)), errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY},
		"read ..":           {second(read(p, "..", 0, 0, 0)), errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY},
		"read pipe":         {second(read(p, "fifo", 0, 0, 0)), errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH},
		"read below a file": {second(read(p, "file/x", 0, 0, 0)), errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH},
		"read NUL":          {second(read(p, "a\x00b", 0, 0, 0)), errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH},
		"read too long":     {second(read(p, "/"+strings.Repeat("p", 6000), 0, 0, 0)), errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH},
		"read over limit":   {second(read(p, "file", 0, 0, 4)), errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT},
		"write folder":      {write(t, p, "dir", "", 0), errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY},
		"write new folder":  {write(t, p, "new/", "", 0), errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY},
		"write pipe":        {write(t, p, "fifo", "", 0), errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH},
		"write empty":       {write(t, p, "", "", 0), errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH},
		"remove missing":    {p.Remove("none", true), errorsv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND},
		"remove folder":     {p.Remove("dir", false), errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY},
	} {
		assert.Equal(t, tt.want, rpcerr.Reason(tt.err), "%s: %v", name, tt.err)
	}
}

// An operation that has opened nothing closes nothing: not the descriptor 0, which may be a connection or a file of
// another part.
func TestAPathThatIsRefusedClosesNothing(t *testing.T) { // Not in parallel: others could open the descriptor.
	p := place(t)
	var before, after unix.Stat_t
	require.NoError(t, unix.Fstat(0, &before))
	for _, path := range []string{"", "a\x00b"} {
		require.Error(t, write(t, p, path, "", 0))
	}
	require.NoError(t, unix.Fstat(0, &after))
	assert.Equal(t, [2]uint64{before.Dev, before.Ino}, [2]uint64{after.Dev, after.Ino})
}

func TestPartsOfAFile(t *testing.T) {
	t.Parallel()
	p := place(t)
	require.NoError(t, write(t, p, "f", "0123456789", 0))
	for _, tt := range []struct {
		offset, limit, max int64
		want               string
	}{{0, 0, 0, "0123456789"}, {3, 4, 0, "3456"}, {8, 9, 0, "89"}, {20, 0, 0, ""}, {0, 4, 4, "0123"}, {6, 0, 4, "6789"}} {
		got, err := read(p, "f", tt.offset, tt.limit, tt.max)
		require.NoError(t, err)
		assert.Equal(t, tt.want, got)
	}
}

// The kernel generates the content of such files during the read: their size is not that of the content.
func TestASizeThatIsNotKnownIsNotGiven(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/proc/version", "/sys/devices/system/cpu/online"} {
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			t.Skipf("this machine has no %s", path)
		}
		require.NoError(t, err)
		r, err := place(t).Open(path, 0, 0, 1000) // Less than the size that sysfs gives.
		require.NoError(t, err)
		defer r.Close()
		assert.Zero(t, r.Info.GetSize(), path)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		assert.NotEmpty(t, got)
		assert.Equal(t, string(content[:4]), string(got[:4]), path)
	}
}

func TestListIsByPathAndBoundedInDepth(t *testing.T) {
	t.Parallel()
	p := place(t)
	for _, f := range []string{"b", "a/x", "a/y/z"} {
		require.NoError(t, write(t, p, f, "1", 0))
	}
	require.NoError(t, os.Symlink("b", p.Workdir+"/l"))
	names := func(depth int) (names []string) {
		entries, truncated, err := p.List(".", depth)
		require.NoError(t, err)
		assert.False(t, truncated)
		for _, e := range entries {
			names = append(names, e.GetPath()+e.GetLinkTarget())
		}
		return names
	}
	assert.Equal(t, []string{"a", "b", "lb"}, names(0))
	assert.Equal(t, []string{"a", "a/x", "a/y", "b", "lb"}, names(2))
	assert.Equal(t, []string{"a", "a/x", "a/y", "a/y/z", "b", "lb"}, names(8))
	require.NoError(t, p.Remove("a", true))
	assert.Equal(t, []string{"b", "lb"}, names(8))
}

func TestAListingIsBounded(t *testing.T) {
	t.Parallel()
	t.Run("in entries", func(t *testing.T) {
		t.Parallel()
		p := place(t)
		for _, folder := range []string{"a", "a/a", "b"} {
			require.NoError(t, os.Mkdir(filepath.Join(p.Workdir, folder), 0o700))
			for i := range 7_000 {
				require.NoError(t, os.Symlink("x", filepath.Join(p.Workdir, folder, fmt.Sprint(i))))
			}
		}
		entries, truncated, err := p.List("a", 1)
		require.NoError(t, err)
		assert.False(t, truncated)
		assert.Len(t, entries, 7_001)
		entries, truncated, err = p.List(".", 9)
		require.NoError(t, err)
		assert.True(t, truncated)
		assert.LessOrEqual(t, len(entries), 20_000)
	})
	t.Run("in bytes, in little time", func(t *testing.T) {
		t.Parallel()
		p := place(t)
		to := strings.Repeat(`a\xff\xfg`, 400)
		for i := range 2_000 {
			require.NoError(t, os.Symlink(to, filepath.Join(p.Workdir, fmt.Sprintf("%04d", i))))
		}
		begin := time.Now()
		entries, truncated, err := p.List(".", 1)
		require.NoError(t, err)
		assert.True(t, truncated)
		size := 0
		for _, e := range entries {
			size += len(e.GetPath()) + len(e.GetLinkTarget())
		}
		assert.LessOrEqual(t, size, 2<<20)
		assert.Equal(t, strings.Repeat(`a\x5cxff\xfg`, 400), entries[0].GetLinkTarget())
		assert.Less(t, time.Since(begin), 5*time.Second)
	})
}

func TestAnotherUserHasOnlyItsRights(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to act as another user")
	}
	dir, err := os.MkdirTemp("/tmp", "file-test") //nolint:usetesting // a folder that another user can walk to
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.WriteFile(dir+"/secret", []byte("x"), 0o600))
	p := file.Place{Workdir: dir, User: account.Account{Name: "other", UID: 12345, GID: 12345}}
	_, err = read(p, "secret", 0, 0, 0)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION), "%v", err)
	assert.True(t, rpcerr.Is(write(t, p, "secret", "y", 0), errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION))
	require.NoError(t, write(t, p, "own/file", "y", 0))
	var st unix.Stat_t
	require.NoError(t, unix.Stat(dir+"/own/file", &st))
	assert.Equal(t, uint32(12345), st.Uid)
	_, err = os.ReadFile(dir + "/secret")
	assert.NoError(t, err, "the program's own rights come back")
}

func TestReadingNeverWaits(t *testing.T) {
	t.Parallel()
	p := place(t)
	require.NoError(t, unix.Mkfifo(p.Workdir+"/fifo", 0o644))
	done := make(chan error, 1)
	go func() { done <- second(read(p, "fifo", 0, 0, 0)) }()
	select {
	case err := <-done:
		require.Error(t, err)
	case <-time.After(waittest.Bound):
		t.Fatal("reading a pipe hangs")
	}
}

func second[A, B any](_ A, b B) B { return b }
