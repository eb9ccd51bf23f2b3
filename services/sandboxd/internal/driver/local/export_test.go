package local

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// DelegateGroups creates a cgroup for a user in each hierarchy that bounds boxes, as an operator does, and returns
// their folders.
func DelegateGroups(t *testing.T, user int) (folders []string) {
	t.Helper()
	mounted, err := mountedHierarchies()
	require.NoError(t, err)
	use := []string{unified}
	if ruled, err := unifiedBounds(); err != nil || !ruled {
		use = controllers
	}
	for _, controller := range use {
		tree, ok := mounted[controller]
		if !ok && controller == "cpu" {
			continue
		}
		if !ok {
			t.Skipf("the cgroups of %s are not mounted from their root here, as in a container: no operator can give a user one", controller)
		}
		parent := filepath.Join(tree.mount, tree.above())
		if controller == unified {
			_, err := useV2(tree) // so that children have the controllers
			require.NoError(t, err)
		}
		folder := filepath.Join(parent, "evalfleet-test-user-"+strconv.Itoa(os.Getpid()))
		require.NoError(t, os.Mkdir(folder, 0o755))
		t.Cleanup(func() {
			var left []groupRef
			require.NoError(t, filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					relative, _ := filepath.Rel(tree.mount, path)
					left = append([]groupRef{{controller, relative}}, left...)
				}
				return err
			}))
			assert.NoError(t, (&cgroups{trees: hierarchies{controller: tree}}).remove(context.Background(), left))
		})
		for _, name := range []string{"", "cgroup.procs", "tasks", "cgroup.threads", "cgroup.subtree_control"} {
			err := os.Chown(filepath.Join(folder, name), user, user)
			if err != nil {
				require.ErrorIs(t, err, os.ErrNotExist)
			}
		}
		folders = append(folders, folder)
	}
	return folders
}
