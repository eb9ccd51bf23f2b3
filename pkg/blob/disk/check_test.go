package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/blob"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// A body is never given as right when it is not: what is read of a damaged one ends with an error that names it.
func TestADamagedBodyIsNamed(t *testing.T) {
	t.Parallel()
	const text = "0123456789"
	sum := sha256.Sum256([]byte(text))
	hash := hex.EncodeToString(sum[:])
	for name, damage := range map[string]func(path string) error{
		"a changed byte": func(path string) error { return os.WriteFile(path, []byte("01234x6789"), 0o600) },
		"cut":            func(path string) error { return os.Truncate(path, 5) },
		"emptied":        func(path string) error { return os.Truncate(path, 0) },
		"longer":         func(path string) error { return os.WriteFile(path, []byte(text+"0"), 0o600) },
		"a pipe":         func(path string) error { return replace(path, func() error { return syscall.Mkfifo(path, 0o600) }) },
		"a folder":       func(path string) error { return replace(path, func() error { return os.Mkdir(path, 0o700) }) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, Config{Dir: dir})
			_, err := s.Put(t.Context(), "p", strings.NewReader(text), "")
			require.NoError(t, err)
			got, err := read(t, s, hash, 2, 3)
			require.NoError(t, err)
			require.Equal(t, "234", got)

			path := filepath.Join(dir, bodyPath("p", hash))
			require.NoError(t, damage(path))
			for _, part := range [][2]int64{{0, 0}, {0, 100}, {0, 3}, {2, 2}} {
				got, err := read(t, s, hash, part[0], part[1])
				damaged, ok := errors.AsType[*blob.DamagedError](err)
				require.True(t, ok, "%v: %q, %v", part, got, err)
				assert.Equal(t, hash, damaged.Hash)
				assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BODY_DAMAGED))
				assert.ErrorContains(t, err, "upload it again")
				assert.Less(t, len(got), len(text), "the last bytes of a damaged body are not given")
			}

			if name == "a folder" {
				return
			}
			_, err = s.Put(t.Context(), "p", strings.NewReader(text), "")
			require.NoError(t, err)
			got, err = read(t, s, hash, 0, 0)
			require.NoError(t, err, "putting it again mends it")
			assert.Equal(t, text, got)
		})
	}
}

func replace(path string, by func() error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return by()
}

// read reads a part of a body in small pieces.
func read(t *testing.T, s *Store, hash string, offset, limit int64) (string, error) {
	t.Helper()
	r, _, err := s.Get(t.Context(), "p", hash, offset, limit)
	if err != nil {
		return "", err
	}
	defer func() { assert.NoError(t, r.Close()) }()
	var b strings.Builder
	_, err = io.CopyBuffer(struct{ io.Writer }{&b}, struct{ io.Reader }{r}, make([]byte, 4))
	return b.String(), err
}

// A part of a body is given without reading all of it once the whole has been found to be right.
func TestAPartIsCheckedOnce(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	ref, err := s.Put(t.Context(), "p", strings.NewReader("0123456789"), "")
	require.NoError(t, err)
	f, err := s.root.Open(bodyPath("p", ref.Hash))
	require.NoError(t, err)
	defer f.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.check(ended, f, "p", ref.Hash), context.Canceled, "the first check reads")
	require.NoError(t, s.check(t.Context(), f, "p", ref.Hash))
	require.NoError(t, s.check(ended, f, "p", ref.Hash), "the second does not")
}
