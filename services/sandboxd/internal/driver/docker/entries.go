package docker

import (
	"context"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The engine counts the bytes of files. A file without any, and a folder, take an entry of the disk all the same, of
// which it has a fixed number.

const (
	// entryBytes is what an entry counts for.
	entryBytes = 4 << 10
	// entriesStorage is the engine's storage whose folders can be looked through.
	entriesStorage = "overlay2"
	// deepestEntry bounds the folders that are open at once. No program nests them so deep.
	deepestEntry = 1024
)

var errTooDeep = errors.New("its folders are nested too deep")

// entries counts what is in a folder and all folders below it, until there is more than most.
func entries(ctx context.Context, folder string, most int64) (int64, error) {
	fd, err := unix.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	n := int64(0)
	err = addEntries(ctx, fd, &n, most, 1)
	return n, err
}

// addEntries counts one open folder and closes it. Folders that are gone in between count no more.
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

// upper is where the engine's storage keeps what a container has written; empty where it does not say.
func (e *engine) upper(ctx context.Context, id string) (string, error) {
	c, err := e.api.ContainerInspect(ctx, id)
	if err != nil {
		return "", err
	}
	if c.ContainerJSONBase == nil || c.GraphDriver.Name != entriesStorage {
		return "", nil
	}
	return c.GraphDriver.Data["UpperDir"], nil
}
