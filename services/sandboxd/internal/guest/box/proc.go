package box

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// hiddenProc are entries of /proc that reveal the host; they are covered, as container runtimes do.
var hiddenProc = []string{
	"acpi", "asound", "buddyinfo", "cmdline", "config.gz", "consoles", "diskstats", "driver", "dynamic_debug", "fb", "interrupts", "iomem", "ioports",
	"kallsyms", "kcore", "keys", "key-users", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats", "locks", "mdstat", "modules", "mtrr",
	"pagetypeinfo", "partitions", "sched_debug", "schedstat", "scsi", "slabinfo", "softirqs", "swaps", "timer_list", "timer_stats", "vmallocinfo", "zoneinfo",
}

// fixedProc are entries of /proc through which the host could be changed or be given work, and the guest itself; they
// are read-only.
var fixedProc = []string{"1", "bus", "fs", "irq", "pressure", "sys", "sysrq-trigger"}

// HandProc mounts a /proc of the process namespace behind the descriptor ns, or of the caller's own where ns is 0, and
// hands it to the box's first process through a socket. Where the kernel cannot mount one for another namespace (before
// Linux 6.17), the error is EINVAL. The caller has CAP_SYS_ADMIN over both namespaces.
func HandProc(socket, ns int) error {
	fd, err := mountProc(ns)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL); err != nil {
		return fmt.Errorf("hand over a proc: %w", err)
	}
	return nil
}

// TakeProc gives the detached mount that HandProc sent through the socket's other end. The caller closes the
// descriptor.
func TakeProc(socket int) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, flags, _, err := unix.Recvmsg(socket, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("take a proc from the launcher: %w", err)
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return -1, fmt.Errorf("take a proc from the launcher: %w", unix.EMFILE)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) == 0 {
		return -1, errors.Join(errors.New("the launcher gave no proc"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, fmt.Errorf("take a proc from the launcher: %w", err)
	}
	return fds[0], nil
}

// mountProc makes a detached mount of a process namespace's /proc.
func mountProc(ns int) (int, error) {
	var options []option
	if ns > 0 {
		options = []option{{name: "pidns", fd: ns}}
	}
	return newMount("proc", private|unix.MOUNT_ATTR_NOEXEC, options)
}

// proc mounts a /proc of the box's own processes: the one that comes through the socket, or a fresh one where there is
// none. /dev/null of the new root must be there.
func (r *root) proc(socket int) (err error) {
	var fd int
	if socket > 0 {
		defer unix.Close(socket)
		fd, err = TakeProc(socket)
	} else {
		fd, err = mountProc(0)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	at := r.path("/proc")
	if err := os.MkdirAll(at, 0o555); err != nil {
		return err
	}
	return attach(fd, at)
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
		if err := fix(path); err != nil {
			return err
		}
	}
	return nil
}

// fix makes what is at path read-only with all below it, and not to be moved, since something is mounted there.
func fix(path string) error {
	fd, err := OpenTree(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return attach(fd, path)
}

func emptyFolder(path string) error {
	fd, err := newMount("tmpfs", readOnly|unix.MOUNT_ATTR_NOEXEC, []option{{name: "mode", text: "0555"}, {name: "nr_inodes", text: "2"}})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return attach(fd, path)
}
