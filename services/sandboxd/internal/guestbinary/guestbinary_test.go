package guestbinary_test

import (
	"bytes"
	"os"
	"os/exec"
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
	find := func() string {
		found, err := guestbinary.Find(program, dir)
		require.NoError(t, err)
		require.NoError(t, found.Stage())
		return found.Path
	}
	first := find()
	content, err := os.ReadFile(first)
	require.NoError(t, err)
	assert.Equal(t, "first", string(content))
	info, err := os.Stat(first)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	assert.Equal(t, first, find())

	require.NoError(t, os.WriteFile(program, []byte("the second"), 0o600))
	second := find()
	assert.NotEqual(t, first, second)
	content, err = os.ReadFile(second)
	require.NoError(t, err)
	assert.Equal(t, "the second", string(content))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 2, "nothing but the copies")
	_, err = guestbinary.Find(filepath.Join(dir, "none"), dir)
	require.ErrorContains(t, err, "make build")
}

// What is within the running program is not read before a box needs it, and is copied once for each content.
func TestAProgramWithinUsIsCopiedWhenItIsNeeded(t *testing.T) {
	t.Parallel()
	us, err := os.Executable()
	require.NoError(t, err)
	program, err := os.ReadFile(us)
	require.NoError(t, err)
	id, err := exec.CommandContext(t.Context(), "go", "tool", "buildid", us).Output()
	require.NoError(t, err)
	id = bytes.TrimSpace(id)
	require.NotEmpty(t, id)
	other := bytes.Replace(program, id, append([]byte("other"), id[5:]...), 1)

	dir := t.TempDir()
	copied := func() (names []string) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, filepath.Join(dir, e.Name()))
		}
		return names
	}
	find := func(program []byte) (*guestbinary.Program, error) {
		within := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(within, "embedded"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(within, "embedded", "guestd"), program, 0o600))
		return guestbinary.FindWithin(os.DirFS(within), dir)
	}
	first, err := find(program)
	require.NoError(t, err)
	assert.Empty(t, copied())
	for range 2 {
		require.NoError(t, first.Stage())
		assert.Equal(t, []string{first.Path}, copied())
	}
	content, err := os.ReadFile(first.Path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(program, content))

	again, err := find(program)
	require.NoError(t, err)
	assert.Equal(t, first.Path, again.Path)
	second, err := find(other)
	require.NoError(t, err)
	require.NoError(t, second.Stage())
	assert.Len(t, copied(), 2)

	_, err = find([]byte("no program"))
	require.Error(t, err)
}
