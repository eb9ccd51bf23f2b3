// Package walk opens paths of the sandbox for its guest. A tenant may have put links there that are meant for the
// guest: no path may lead through the open files, roots and working directories of processes in /proc, nor to anything
// that /proc shows of the guest itself.
package walk

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/fault"
)

// absent reports that this kernel, or a filter of the engine, has no openat2 (Linux 5.6). A guest there is the first
// process of a container: it has no descriptor that leads out of the sandbox.
var absent atomic.Bool

// Open opens a path with the rights of the calling thread. The flags are those of open(2); the descriptor is closed on
// exec. A path by way of /proc that is refused is ELOOP, or INVALID_PATH where it ends at the guest itself.
func Open(path string, flags int) (int, error) {
	return open(unix.AT_FDCWD, path, flags, unix.RESOLVE_NO_MAGICLINKS)
}

// Below opens a path below the folder dir that has neither `..` nor links in it.
func Below(dir int, path string, flags int) (int, error) {
	return open(dir, path, flags|unix.O_NOFOLLOW, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH)
}

// Regular opens a file for reading. What is not a regular file is not opened: such a path is IsADirectory (EISDIR) or
// ErrNotRegular.
func Regular(path string) (*os.File, os.FileInfo, error) {
	found, err := Open(path, unix.O_PATH)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(found)
	var st unix.Stat_t
	if err := unix.Fstat(found, &st); err != nil {
		return nil, nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return nil, nil, unix.EISDIR
	default:
		return nil, nil, ErrNotRegular
	}
	f, err := os.OpenFile(Name(found), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// ErrNotRegular is the error of a path that leads to a pipe, a socket or a device.
var ErrNotRegular = errors.New("neither a file nor a folder")

// Name is a path of what this program has open, for calls that take paths alone.
func Name(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func open(dir int, path string, flags int, resolve uint64) (fd int, err error) {
	flags |= unix.O_CLOEXEC
	if !absent.Load() {
		how := unix.OpenHow{Flags: uint64(flags), Resolve: resolve}
		for {
			if fd, err = unix.Openat2(dir, path, &how); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) && !works() {
			absent.Store(true)
		}
	}
	if absent.Load() {
		fd, err = unix.Openat(dir, path, flags, 0)
	}
	if err != nil {
		return -1, err
	}
	if ofGuest(fd) {
		unix.Close(fd)
		return -1, fault.InvalidPath(path, "it belongs to the program that serves the sandbox")
	}
	return fd, nil
}

// works reports whether openat2 does what nothing else can refuse.
func works() bool {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// ofGuest reports of something open whether it is what /proc shows of this program: below the number of one of its
// threads.
func ofGuest(fd int) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return false
	}
	path, err := os.Readlink(Name(fd))
	if err != nil {
		return true
	}
	below, found := strings.CutPrefix(path, "/proc/")
	if !found {
		return path != "/proc"
	}
	number, _, _ := strings.Cut(below, "/")
	if _, err := strconv.Atoi(number); err != nil {
		return false
	}
	_, err = os.Lstat("/proc/self/task/" + number)
	return err == nil
}
