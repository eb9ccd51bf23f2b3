package disk

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/blob/blobtest"
)

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, blobtest.Harness{New: func(t *testing.T, maxBytes int64) blob.Store {
		return open(t, Config{Dir: filepath.Join(t.TempDir(), "made", "on", "demand"), MaxBytes: maxBytes})
	}})
}

func TestBodiesSurviveReopening(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := open(t, Config{Dir: dir})
	ref, err := first.Put(t.Context(), "p", strings.NewReader("body"), "text/plain")
	require.NoError(t, err)
	require.NoError(t, first.Close())
	got, err := open(t, Config{Dir: dir}).Stat(t.Context(), "p", ref.Hash)
	require.NoError(t, err)
	assert.Equal(t, ref, got)
}

func TestFilesBelongToTheirOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "blobs")
	s := open(t, Config{Dir: dir})
	ref, err := s.Put(t.Context(), "p", strings.NewReader("body"), "text/plain")
	require.NoError(t, err)
	var files []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if d.IsDir() {
			assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), path)
			return nil
		}
		assert.Equal(t, fs.FileMode(0o600), info.Mode(), path)
		files = append(files, strings.TrimPrefix(path, dir))
		return nil
	}))
	name := "/p/" + ref.Hash[:2] + "/" + ref.Hash
	assert.Equal(t, []string{name, name + ".type"}, files, "and nothing is left over")
}

func TestFailedPutLeavesNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, MaxBytes: 3})
	for _, body := range []io.Reader{strings.NewReader("body"), iotest.ErrReader(io.ErrUnexpectedEOF)} {
		_, err := s.Put(t.Context(), "p", body, "")
		require.Error(t, err)
	}
	left, err := os.ReadDir(filepath.Join(dir, incoming))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestOpenRemovesWhatDeadProcessesLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, Config{Dir: dir})
	stale, fresh := filepath.Join(dir, incoming, "stale"), filepath.Join(dir, incoming, "fresh")
	for _, name := range []string{stale, fresh} {
		require.NoError(t, os.WriteFile(name, nil, 0o600))
	}
	long := time.Now().Add(-2 * staleAfter)
	require.NoError(t, os.Chtimes(stale, long, long))
	open(t, Config{Dir: dir})
	assert.NoFileExists(t, stale)
	assert.FileExists(t, fresh, "another process may be receiving it")
}

func TestLinksDoNotLeadOut(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	s := open(t, Config{Dir: dir})
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "p")))
	_, err := s.Put(t.Context(), "p", strings.NewReader("body"), "")
	assert.Error(t, err)
	left, err := os.ReadDir(outside)
	require.NoError(t, err)
	assert.Empty(t, left)
}
