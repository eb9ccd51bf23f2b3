package regularfile_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/regularfile"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestOnlyRegularFilesAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, socket, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket"), filepath.Join(dir, "link")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer listener.Close()
	require.NoError(t, os.Symlink(pipe, link))
	for path, why := range map[string]string{
		pipe:        "is a pipe; save what it gives to a file",
		link:        "is a pipe",
		dir:         "is a folder; name a file in it",
		socket:      "is a socket",
		"/dev/zero": "is a device",
		"/dev/null": "is a device",
	} {
		_, err := regularfile.Read(t.Context(), path, 10)
		_, ours := errors.AsType[*regularfile.Error](err)
		assert.True(t, ours, "%s: %v", path, err)
		assert.ErrorContains(t, err, path+" "+why)
	}
	_, err = regularfile.Read(t.Context(), filepath.Join(dir, "none"), 10)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestAFileIsReadUpToABound(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, []byte("0123456789"), 0o600))
	content, err := regularfile.Read(t.Context(), path, 10)
	require.NoError(t, err)
	assert.Equal(t, "0123456789", string(content))
	_, err = regularfile.Read(t.Context(), path, 9)
	assert.ErrorContains(t, err, path+" is larger than 9 bytes")
	_, err = regularfile.Read(t.Context(), "/proc/self/status", 9)
	assert.ErrorContains(t, err, "is larger than 9 bytes", "a file that says it has no bytes")
}

func TestAReadThatWaitsIsLeftWithItsContext(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	defer r.Close()
	_, err = w.WriteString("abc")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	read := regularfile.ReaderPastCache(ctx, r)
	b := make([]byte, 8)
	n, err := read.Read(b)
	require.NoError(t, err)
	assert.Equal(t, "abc", string(b[:n]))
	left := make(chan error, 1)
	go func() {
		_, err := read.Read(b)
		left <- err
	}()
	cancel()
	assert.ErrorIs(t, waittest.For(t, left, "the end of a read"), context.Canceled)
}

func TestAReaderEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := regularfile.ContextReader(ctx, strings.NewReader("abc"))
	_, err := r.Read(make([]byte, 1))
	require.NoError(t, err)
	cancel()
	_, err = r.Read(make([]byte, 1))
	assert.ErrorIs(t, err, context.Canceled)
}
