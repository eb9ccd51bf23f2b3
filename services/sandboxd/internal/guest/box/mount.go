package box

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	private  = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
)

// OpenTree makes a detached read-only copy of the mount at path with all below it. The caller closes the descriptor.
func OpenTree(path string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("open the tree %s: %w", path, err)
	}
	attr := unix.MountAttr{Attr_set: readOnly, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("make the tree %s read-only (needs Linux 5.12): %w", path, err)
	}
	return fd, nil
}

// open makes the mount where the launcher has not. It is done before the box has a root of its own.
func (m *Mount) open(isolated bool) (err error) {
	switch {
	case m.FD > 0 || m.Source == "":
	case isolated:
		m.FD, err = OpenTree(m.Source)
	default: // what is around it is the box's as well
		m.FD, err = unix.Open(m.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	return err
}

// openDevice makes a detached copy of a device node of the host.
func openDevice(path string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open the device %s: %w", path, err)
	}
	return fd, nil
}

// attach mounts a detached mount at path.
func attach(fd int, path string) error {
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount at %s: %w", path, err)
	}
	return nil
}

// option is a setting of a file system: a text, or a descriptor where that is above 0.
type option struct {
	name, text string
	fd         int
}

// newMount makes a detached mount of a fresh file system.
func newMount(kind string, attrs int, options []option) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open a %s: %w", kind, err)
	}
	defer unix.Close(fs)
	for _, o := range options {
		if o.fd > 0 {
			err = unix.FsconfigSetFd(fs, o.name, o.fd)
		} else {
			err = unix.FsconfigSetString(fs, o.name, o.text)
		}
		if err != nil {
			return -1, fmt.Errorf("set %s of a %s: %w", o.name, kind, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("make a %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return -1, fmt.Errorf("mount a %s: %w", kind, err)
	}
	return fd, nil
}

// newTmpfs makes a detached tmpfs that is bounded in bytes and files.
func newTmpfs(bytes, inodes int64) (int, error) {
	options := []option{{name: "mode", text: "0755"}}
	if bytes > 0 {
		options = append(options, option{name: "size", text: strconv.FormatInt(bytes, 10)})
	}
	if inodes > 0 {
		options = append(options, option{name: "nr_inodes", text: strconv.FormatInt(inodes, 10)})
	}
	return newMount("tmpfs", private, options)
}
