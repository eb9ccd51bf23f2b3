package docker

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The engine counts the bytes of files. An empty file or a folder still takes an entry of the disk, of which there is a
// fixed number.

const (
	// entryBytes is the number of bytes that an entry counts as.
	entryBytes = 4 << 10
	// entriesStorage is the engine's storage driver whose folders can be walked.
	entriesStorage = "overlay2"
	// deepestEntry bounds the folders that are open at once. No program nests folders so deep.
	deepestEntry = 1024
)

var errTooDeep = errors.New("its folders are nested too deep")

// entries counts the entries of an open folder and of all folders below it, up to most. It closes the folder.
func entries(ctx context.Context, fd int, most int64) (int64, error) {
	n := int64(0)
	err := addEntries(ctx, fd, &n, most, 1)
	return n, err
}

// addEntries counts one open folder and closes it. Folders that disappear in the meantime do not count.
func addEntries(ctx context.Context, fd int, n *int64, most int64, depth int) error {
	folder := os.NewFile(uintptr(fd), "/proc/self/fd/"+strconv.Itoa(fd))
	defer folder.Close()
	for ctx.Err() == nil && *n <= most {
		some, err := folder.ReadDir(256)
		if err != nil {
			return nil //nolint:nilerr // It has ended, or is gone.
		}
		*n += int64(len(some))
		for _, entry := range some {
			if !entry.IsDir() {
				continue
			}
			if depth == deepestEntry {
				return errTooDeep
			}
			below, err := unix.Openat(fd, entry.Name(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			if err := addEntries(ctx, below, n, most, depth+1); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// place is the folder of a layer, as the parent of a container's first process sees it.
type place struct {
	first  int // the process
	folder string
}

// layer opens the folder in which the engine's storage has the data that a running container has written. An error
// without a reason that is no shortage means that the folder is not visible from here.
func (e *engine) layer(ctx context.Context, id string) (fd int, err error) {
	e.mu.Lock()
	at, known := e.places[id]
	e.mu.Unlock()
	if known {
		if fd, err := openSeenBy(at.first, at.folder); err == nil {
			return fd, nil
		}
	}
	c, err := e.api.ContainerInspect(ctx, id)
	switch {
	case err != nil:
		return -1, e.kind(ctx, "look for the layer of a container", err)
	case c.ContainerJSONBase == nil || c.State == nil || c.GraphDriver.Name != entriesStorage:
		return -1, os.ErrNotExist
	}
	at = place{c.State.Pid, c.GraphDriver.Data["UpperDir"]}
	e.mu.Lock()
	e.places[id] = at
	e.mu.Unlock()
	return openSeenBy(at.first, at.folder)
}

// openSeenBy opens a folder as the parent of a process sees it. The parent of a container's first process has started
// it and sees the engine's storage, which may be at another path for this program: an engine may have its own mounts or
// root.
func openSeenBy(child int, folder string) (fd int, err error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(child) + "/status")
	if err != nil {
		return -1, err
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
	parent, _, _ := strings.Cut(rest, "\n")
	root, err := unix.Open("/proc/"+parent+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	return unix.Openat2(root, folder, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
}
