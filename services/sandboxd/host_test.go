package sandboxd

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAFolderOfSandboxesKeepsItsName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name, err := hostOf(dir)
	require.NoError(t, err)
	assert.NotEmpty(t, name)
	again, err := hostOf(dir)
	require.NoError(t, err)
	assert.Equal(t, name, again)
	other, err := hostOf(t.TempDir())
	require.NoError(t, err)
	assert.NotEqual(t, name, other)
	_, err = hostOf(filepath.Join(dir, "none"))
	require.Error(t, err)
}
