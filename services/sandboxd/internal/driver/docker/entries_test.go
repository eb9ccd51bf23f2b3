package docker

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	n, err := entries(t.Context(), dir, 10_000)
	require.NoError(t, err)
	assert.EqualValues(t, 604, n)
	n, err = entries(t.Context(), dir, 100)
	require.NoError(t, err)
	assert.Greater(t, n, int64(100))
	assert.Less(t, n, int64(604), "what is over the bound is not counted on")

	require.NoError(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", deepestEntry+1)), 0o700))
	_, err = entries(t.Context(), dir, 10_000)
	require.ErrorIs(t, err, errTooDeep)
	_, err = entries(t.Context(), filepath.Join(dir, "none"), 1)
	require.ErrorIs(t, err, os.ErrNotExist)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = entries(ctx, dir, 10_000)
	require.ErrorIs(t, err, context.Canceled)
}
