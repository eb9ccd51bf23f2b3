package guestbinary_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guestbinary"
)

// A program is copied once, for all to start, and an update of it is another copy.
func TestAProgramIsCopied(t *testing.T) {
	t.Parallel()
	program, dir := filepath.Join(t.TempDir(), "program"), t.TempDir()
	require.NoError(t, os.WriteFile(program, []byte("first"), 0o600))
	first, err := guestbinary.Stage(program, dir)
	require.NoError(t, err)
	content, err := os.ReadFile(first)
	require.NoError(t, err)
	assert.Equal(t, "first", string(content))
	info, err := os.Stat(first)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	again, err := guestbinary.Stage(program, dir)
	require.NoError(t, err)
	assert.Equal(t, first, again)

	require.NoError(t, os.WriteFile(program, []byte("the second"), 0o600))
	second, err := guestbinary.Stage(program, dir)
	require.NoError(t, err)
	assert.NotEqual(t, first, second)
	content, err = os.ReadFile(second)
	require.NoError(t, err)
	assert.Equal(t, "the second", string(content))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 2, "nothing but the copies")
	_, err = guestbinary.Stage(filepath.Join(dir, "none"), dir)
	require.ErrorContains(t, err, "make build")
}
