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

// An engine in a container names that before its own containers.
func TestWhichContainerAProcessIsOf(t *testing.T) {
	t.Parallel()
	outer, inner := strings.Repeat("a", 64), strings.Repeat("b", 64)
	known := map[string]bool{inner: true}
	assert.Equal(t, inner, containerOf("4:memory:/docker/"+inner+"\n", known))
	assert.Equal(t, inner, containerOf("4:memory:/docker/"+outer+"/docker/"+inner+"\n", known))
	assert.Equal(t, inner, containerOf("0::/system.slice/docker-"+inner+".scope\n", known))
	assert.Empty(t, containerOf("4:memory:/docker/"+outer+"\n", known))
	assert.Empty(t, containerOf("0::/\n", known))
}

// What is looked at is bounded, in number and in time. A folder stands for that of a process.
func TestTheSearchForRemovedFilesIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 30 {
		require.NoError(t, os.Symlink("/dev/null", filepath.Join(dir, strconv.Itoa(i))))
	}
	for most, full := range map[int]bool{30: false, 29: true} {
		r := &removed{files: map[file]int64{}, most: most}
		r.add(t.Context(), dir+"/")
		assert.Equal(t, full, r.full())
		assert.Zero(t, r.bytes())
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	r := &removed{files: map[file]int64{}, most: 30}
	assert.Zero(t, r.add(over, dir+"/"))
	_, err := unlinked(over, map[string]bool{strings.Repeat("a", 64): true}, 30)
	require.ErrorIs(t, err, context.Canceled)
}
