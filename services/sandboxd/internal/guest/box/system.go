package box

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// hiddenProc are entries of /proc that tell of the host; they are covered, as container runtimes do.
var hiddenProc = []string{
	"acpi", "asound", "cmdline", "config.gz", "interrupts", "kallsyms", "kcore", "keys", "key-users", "kmsg", "kpagecgroup", "kpagecount",
	"kpageflags", "latency_stats", "modules", "sched_debug", "scsi", "timer_list", "timer_stats",
}

// fixedProc are entries of /proc through which the host could be changed; they are read-only.
var fixedProc = []string{"bus", "fs", "irq", "sys", "sysrq-trigger"}

// proc mounts a /proc of the box's own processes. /dev/null of the new root must be there.
func (r *root) proc() error {
	fd, err := newMount("proc", private|unix.MOUNT_ATTR_NOEXEC, nil)
	if err != nil {
		return err
	}
	at := r.path("/proc")
	if err := os.MkdirAll(at, 0o555); err != nil {
		return err
	}
	if err := attach(fd, at); err != nil {
		return err
	}
	return unix.Close(fd)
}

// coverProc hides and fixes what a box must not see or change.
func (r *root) coverProc() error {
	for _, name := range hiddenProc {
		path := r.path("/proc/" + name)
		info, err := os.Lstat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.IsDir() {
			err = emptyFolder(path)
		} else {
			err = unix.Mount(r.path("/dev/null"), path, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("cover %s: %w", name, err)
		}
	}
	for _, name := range fixedProc {
		path := r.path("/proc/" + name)
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		fd, err := OpenTree(path)
		if err != nil {
			return err
		}
		if err := attach(fd, path); err != nil {
			return err
		}
		unix.Close(fd)
	}
	return nil
}

func emptyFolder(path string) error {
	fd, err := newMount("tmpfs", readOnly|unix.MOUNT_ATTR_NOEXEC, [][2]string{{"mode", "0555"}, {"nr_inodes", "2"}})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return attach(fd, path)
}

// dev makes a /dev of the given devices and terminals of the box's own.
func (r *root) dev(names []string, fds []int, terminalGroup int) error {
	for i, name := range names {
		path := r.path("/dev/" + name)
		if err := mountPoint(path, true); err != nil {
			return err
		}
		if err := attach(fds[i], path); err != nil {
			return err
		}
		unix.Close(fds[i])
	}
	options := [][2]string{{"ptmxmode", "0666"}, {"mode", "0620"}}
	if terminalGroup >= 0 {
		options = append(options, [2]string{"gid", fmt.Sprint(terminalGroup)})
	}
	fd, err := newMount("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, options)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	at := r.path("/dev/pts")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := attach(fd, at); err != nil {
		return err
	}
	for link, to := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, filepath.Join(r.path("/dev"), link)); err != nil {
			return err
		}
	}
	return nil
}

func openDevices(names []string) ([]int, error) {
	fds := make([]int, len(names))
	for i, name := range names {
		fd, err := openDevice("/dev/" + name)
		if err != nil {
			return nil, err
		}
		fds[i] = fd
	}
	return fds, nil
}

// loopback brings the box's own loopback up, so that programs in the box can talk to each other.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

// noNestedNamespaces forbids user namespaces inside the box: through one a program would get powers over its own copy of the rest.
func noNestedNamespaces() error {
	return os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
}
