// Package proclink removes symbolic links that lead into /proc. Such a link is another file for each process that opens
// it, such as the working directory or the input of that process, so that a check which compares the agent's file with
// its own could compare its own with itself.
package proclink

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/walk"
)

const (
	// maxDepth bounds the folders that are open at once.
	maxDepth = 256
	// maxLinks is how many links the kernel follows in one path.
	maxLinks = 40
	// batch is how many entries of a folder are held at once.
	batch = 128
)

// Errors of Remove.
var (
	ErrTooDeep    = errors.New("folders are nested too deep")
	ErrTooMany    = errors.New("there are too many files to look through in time")
	ErrUnreadable = errors.New("a folder that can be entered cannot be listed")
)

// Remove removes, from the folder and all folders below it, the links that lead into a file system of kind proc,
// wherever they lead on from there and whether or not that exists. Other links stay. No process may change the folder
// meanwhile. A path that is no folder has none.
func Remove(folder string, until time.Time) error {
	fd, err := walk.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	switch {
	case errors.Is(err, unix.EACCES):
		return closed(unix.AT_FDCWD, folder)
	case leadsNowhere(err):
		return nil
	case err != nil:
		return err
	}
	return remove(fd, until, 1)
}

// remove does the work of one folder, and closes it.
func remove(fd int, until time.Time, depth int) error {
	folder := os.NewFile(uintptr(fd), walk.Name(fd))
	defer folder.Close()
	for {
		removed := false
		for {
			entries, err := folder.ReadDir(batch)
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			if time.Now().After(until) {
				return ErrTooMany
			}
			for _, entry := range entries {
				switch {
				case entry.Type()&os.ModeSymlink != 0:
					leads, err := leadsToProc(fd, entry.Name(), until)
					if err == nil && leads {
						err = unix.Unlinkat(fd, entry.Name(), 0)
					}
					if err != nil {
						return err
					}
					removed = removed || leads
				case entry.IsDir():
					if err := removeBelow(fd, entry.Name(), until, depth); err != nil {
						return err
					}
				}
			}
		}
		if !removed {
			return nil
		}
		// What is removed may move the rest.
		if _, err := folder.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}

func removeBelow(parent int, name string, until time.Time, depth int) error {
	if depth == maxDepth {
		return ErrTooDeep
	}
	fd, err := walk.Below(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.EACCES) {
		return closed(parent, name)
	} else if err != nil {
		return err
	}
	return remove(fd, until, depth+1)
}

// closed gives the error for a folder that cannot be listed: none where nothing in it can be opened either.
func closed(parent int, name string) error {
	if unix.Faccessat(parent, name, unix.X_OK, unix.AT_EACCESS) == nil {
		return ErrUnreadable
	}
	return nil
}

// leadsNowhere reports whether an error of opening a step of a link is of what is there, and not of this process, such
// as a shortage of descriptors.
func leadsNowhere(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EACCES) ||
		errors.Is(err, unix.ENAMETOOLONG)
}

// leadsToProc follows an entry of an open folder step by step. A step that leads nowhere counts as a folder: a check
// may make one there before it opens the link.
func leadsToProc(folder int, name string, until time.Time) (bool, error) {
	at, err := unix.FcntlInt(uintptr(folder), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer func() { unix.Close(at) }()
	absent := 0 // steps from at to a folder that may be made
	for links, rest := 0, name; rest != ""; {
		var step string
		if strings.HasPrefix(rest, "/") { // Only a target of a link begins so.
			step = "/"
		} else {
			step, rest, _ = strings.Cut(rest, "/")
		}
		rest = strings.TrimLeft(rest, "/")
		switch {
		case absent == 0:
		case step == "..":
			absent--
			continue
		case step == ".":
			continue
		default:
			absent++
			continue
		}
		next, err := unix.Openat(at, step, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if leadsNowhere(err) {
			absent = 1
			continue
		}
		if err != nil {
			return false, fmt.Errorf("follow the link %s: %w", name, err)
		}
		to, kind := look(next)
		if kind == folderKind {
			unix.Close(at)
			at = next
			continue
		}
		unix.Close(next)
		switch kind {
		case procKind:
			return true, nil
		case linkKind:
			if links++; links > maxLinks {
				return false, nil
			}
			if time.Now().After(until) { // A link has up to 4095 bytes of steps.
				return false, ErrTooMany
			}
			rest = to + "/" + rest
		default:
			absent = 1
		}
	}
	return false, nil
}

// kind is what a step of a link leads to.
type kind int

const (
	fileKind kind = iota
	folderKind
	linkKind
	procKind // whatever it is, in a file system of kind proc
)

// look returns what is open, and the target of a link. An entry that cannot be inspected may be anything, even in proc.
func look(fd int) (target string, is kind) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Fstatfs(fd, &fs) != nil || fs.Type == unix.PROC_SUPER_MAGIC || unix.Fstat(fd, &st) != nil {
		return "", procKind
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "", folderKind
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, "", buf)
		if err != nil {
			return "", procKind
		}
		return string(buf[:n]), linkKind
	}
	return "", fileKind
}
