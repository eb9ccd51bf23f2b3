package disk

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/blob/blobtest"
	"github.com/evalfleet/evalfleet/pkg/waittest"
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

// A sweep removes unused bodies, and leaves those that are put or read at the same moment.
func TestASweepLeavesWhatIsUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	since := time.Now().Add(-time.Hour)
	old := func() string {
		ref, err := s.Put(t.Context(), "p", strings.NewReader("body"), "text/plain")
		require.NoError(t, err)
		long := time.Now().Add(-2 * time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(dir, bodyPath("p", ref.Hash)), long, long))
		return ref.Hash
	}
	hash := old()
	all, err := s.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1, "a type is no body")
	assert.Equal(t, hash, all[0].Hash)
	assert.True(t, all[0].Used.Before(since))

	read, err := s.Peek(t.Context(), "p", hash)
	require.NoError(t, err)
	require.NoError(t, read.Close())
	deleted, err := s.DeleteUnused(t.Context(), "p", hash, since)
	require.NoError(t, err)
	assert.True(t, deleted, "to look into it is no use")
	_, err = s.Stat(t.Context(), "p", hash)
	require.ErrorIs(t, err, blob.ErrNotFound)
	deleted, err = s.DeleteUnused(t.Context(), "p", hash, since)
	require.NoError(t, err)
	assert.False(t, deleted)

	for _, use := range []func() error{
		func() error {
			_, err := s.Put(t.Context(), "p", strings.NewReader("body"), "text/plain")
			return err
		},
		func() error {
			body, _, err := s.Get(t.Context(), "p", hash, 0, 0)
			if err == nil {
				err = body.Close()
			}
			return err
		},
	} {
		old()
		require.NoError(t, use())
		deleted, err := s.DeleteUnused(t.Context(), "p", hash, since)
		require.NoError(t, err)
		assert.False(t, deleted)
		ref, err := s.Stat(t.Context(), "p", hash)
		require.NoError(t, err)
		assert.Equal(t, "text/plain", ref.MediaType)
	}
}

func TestASweepBesideWritersLosesNothingThatWasAnswered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	since := time.Now().Add(-time.Minute)
	var sweeping sync.WaitGroup
	ended := make(chan struct{})
	hash := "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5" // of "body"
	sweeping.Go(func() {
		long := time.Now().Add(-time.Hour)
		for {
			select {
			case <-ended:
				return
			default:
			}
			_ = os.Chtimes(filepath.Join(dir, bodyPath("p", hash)), long, long)
			_, err := s.DeleteUnused(t.Context(), "p", hash, since)
			assert.NoError(t, err)
		}
	})
	for range 50 {
		ref, err := s.Put(t.Context(), "p", strings.NewReader("body"), "")
		require.NoError(t, err, "a put beside a sweep works")
		require.Equal(t, hash, ref.Hash)
	}
	close(ended)
	waittest.Return(t, sweeping.Wait, "the sweep to end")
	_, err := s.Put(t.Context(), "p", strings.NewReader("body"), "")
	require.NoError(t, err)
	_, err = s.Stat(t.Context(), "p", hash)
	require.NoError(t, err)
}
