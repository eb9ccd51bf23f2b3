package programtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/programtest"
)

// A second build links nothing: it has the file of the first, and keeps it when the first is removed.
func TestAnUnchangedProgramIsLinkedOnce(t *testing.T) {
	t.Parallel()
	const program = "./pkg/programtest/testdata/hello"
	var dirs [2]string
	var files [2]os.FileInfo
	for i := range dirs {
		var err error
		dirs[i], err = programtest.Build("", program)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dirs[i])) })
		files[i], err = os.Stat(filepath.Join(dirs[i], "hello"))
		require.NoError(t, err)
	}
	assert.True(t, os.SameFile(files[0], files[1]))
	require.NoError(t, os.RemoveAll(dirs[0]))
	said, err := exec.CommandContext(t.Context(), filepath.Join(dirs[1], "hello")).CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, "hello\n", string(said))
}

func TestTagsMakeProgramsOfTheirOwn(t *testing.T) {
	t.Parallel()
	dir, err := programtest.Build("loud", "./pkg/programtest/testdata/hello")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	said, err := exec.CommandContext(t.Context(), filepath.Join(dir, "hello")).CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, "HELLO\n", string(said))
}

func TestWhatDoesNotBuildIsSaid(t *testing.T) {
	t.Parallel()
	_, err := programtest.Build("", "./pkg/programtest/testdata/nowhere")
	require.ErrorContains(t, err, "nowhere")
}
