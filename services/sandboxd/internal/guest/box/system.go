package box

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/bound"
)

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
	options := []option{{name: "ptmxmode", text: "0666"}, {name: "mode", text: "0620"}, {name: "max", text: strconv.Itoa(bound.BoxTerminals)}}
	if terminalGroup >= 0 {
		options = append(options, option{name: "gid", text: strconv.Itoa(terminalGroup)})
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

// userSettings bound what the users of a box take of counters of the whole machine (/proc/sys/user): user namespaces,
// since through one a program would get powers over its own copy of the rest, and watches of files.
var userSettings = []struct {
	name  string
	value int
	part  string // what is weaker without it
}{
	{"max_user_namespaces", 0, "nested namespaces: not forbidden"},
	{"max_inotify_instances", bound.BoxInotifyInstances, "inotify instances: bounded for the user of this machine alone"},
	{"max_inotify_watches", bound.BoxInotifyWatches, "inotify watches: bounded for the user of this machine alone"},
}

// boundUsers sets the user settings of the box's own user namespace, and says which this kernel does not let be set.
func boundUsers() (weaker []string, err error) {
	for _, s := range userSettings {
		if err := os.WriteFile("/proc/sys/user/"+s.name, []byte(strconv.Itoa(s.value)), 0); Transient(err) {
			return nil, err
		} else if err != nil {
			weaker = append(weaker, s.part+" ("+err.Error()+")")
		}
	}
	return weaker, nil
}
