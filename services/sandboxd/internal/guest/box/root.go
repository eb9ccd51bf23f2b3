package box

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// root is the private root while it is being built: a folder of the old one.
type root struct {
	at string
	fd int
}

// stagingFolders are where a root may be mounted while it is built; the trees that it needs are open by then.
var stagingFolders = []string{"/tmp", "/mnt", "/var", "/usr"}

// newRoot mounts an empty, bounded root.
func newRoot(bytes, inodes int64) (*root, error) {
	fd, err := newTmpfs(bytes, inodes)
	if err != nil {
		return nil, err
	}
	for _, at := range stagingFolders {
		if info, err := os.Stat(at); err == nil && info.IsDir() {
			return &root{at: at, fd: fd}, attach(fd, at)
		}
	}
	return nil, fmt.Errorf("none of %s is a folder: %w", strings.Join(stagingFolders, ", "), unix.ENOENT)
}

func (r *root) path(target string) string { return filepath.Join(r.at, filepath.Clean("/"+target)) }

// folders makes the writable folders, parents first.
func (r *root) folders(folders []Folder) error {
	sorted := slices.SortedFunc(slices.Values(folders), func(a, b Folder) int { return strings.Compare(a.Path, b.Path) })
	for _, f := range sorted {
		path := r.path(f.Path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := os.Chown(path, f.UID, f.GID); err != nil {
			return err
		}
		if err := unix.Chmod(path, f.Mode); err != nil { // os.Chmod has another idea of the sticky bit
			return fmt.Errorf("chmod %s: %w", f.Path, err)
		}
	}
	return nil
}

// files writes small files and links.
func (r *root) files(files, links map[string]string) error {
	for target, content := range files {
		path := r.path(target)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	for target, to := range links {
		path := r.path(target)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(to, path); err != nil {
			return err
		}
	}
	return nil
}

// trees attaches the parts of the host.
func (r *root) trees(trees []Tree, fds []int) error {
	for i, tree := range trees {
		path := r.path(tree.Target)
		if err := mountPoint(path, tree.File); err != nil {
			return err
		}
		if err := attach(fds[i], path); err != nil {
			return err
		}
		unix.Close(fds[i])
	}
	return nil
}

// enter makes the private root the root of every process of the mount namespace and lets go of the old one.
func (r *root) enter() error {
	if err := unix.Fchdir(r.fd); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the old root: %w", err)
	}
	unix.Close(r.fd)
	return os.Chdir("/")
}

// mountPoint makes an empty file or folder.
func mountPoint(path string, file bool) error {
	if !file {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// openTrees opens all trees; those that the launcher has opened are taken as they are.
func openTrees(trees []Tree) ([]int, error) {
	fds := make([]int, len(trees))
	for i := range trees {
		if err := trees[i].open(true); err != nil {
			return nil, err
		}
		fds[i] = trees[i].FD
	}
	return fds, nil
}
