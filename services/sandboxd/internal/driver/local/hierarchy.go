package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// controllers are what cgroups bound for a box; cpu may be missing.
var controllers = []string{"memory", "pids", "cpu"}

// unified is the name of the one hierarchy of cgroups v2 among those of v1, which are named by their controller.
const unified = ""

// hierarchy is a cgroup tree: where it is mounted, and the group of this process in it, as a path from the mount.
type hierarchy struct{ mount, own string }

// hierarchies are cgroup trees by controller.
type hierarchies map[string]hierarchy

// mountedHierarchies reads where the hierarchies are mounted and where this process is in each.
func mountedHierarchies() (hierarchies, error) {
	own, err := ownGroups()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find the mounted cgroups: %w", err)
	}
	return parseMounts(string(data), own), nil
}

// unifiedBounds reports whether the hierarchy of version 2 is what bounds memory on this machine.
func unifiedBounds() (bool, error) {
	mounted, err := mountedHierarchies()
	if err != nil || mounted[unified].mount == "" {
		return false, err
	}
	has, err := os.ReadFile(filepath.Join(mounted[unified].mount, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(has)), "memory"), err
}

// parseMounts reads lines such as "36 35 98:0 /root /mount/point options … - type source superoptions".
func parseMounts(mountinfo string, own map[string]string) hierarchies {
	h := hierarchies{}
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(g) < 3 || f[3] != "/" {
			continue
		}
		switch g[0] {
		case "cgroup2":
			h[unified] = hierarchy{f[4], own[unified]}
		case "cgroup":
			for controller := range strings.SplitSeq(g[2], ",") {
				if slices.Contains(controllers, controller) {
					h[controller] = hierarchy{f[4], own[controller]}
				}
			}
		}
	}
	return h
}

// ownGroups reads which group this process is in, by controller.
func ownGroups() (map[string]string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find this process's cgroups: %w", err)
	}
	own := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			for controller := range strings.SplitSeq(f[1], ",") {
				own[controller] = f[2]
			}
		}
	}
	return own, nil
}

// mountHierarchies mounts the hierarchies for this process alone: the mounts have no place among the files of the
// machine and end with the descriptors.
func mountHierarchies() (hierarchies, []*os.File, error) {
	own, err := ownGroups()
	if err != nil {
		return nil, nil, err
	}
	var (
		h     = hierarchies{}
		files []*os.File
		errs  []error
	)
	for _, controller := range append([]string{unified}, controllers...) {
		f, err := detachedMount(controller)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files = append(files, f)
		h[controller] = hierarchy{fmt.Sprintf("/proc/self/fd/%d", f.Fd()), own[controller]}
	}
	if len(files) == 0 {
		return nil, nil, errors.Join(errs...)
	}
	return h, files, nil
}

func detachedMount(controller string) (*os.File, error) {
	kind := "cgroup"
	if controller == unified {
		kind = "cgroup2"
	}
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", kind, err)
	}
	defer unix.Close(fs)
	if controller != unified {
		if err := unix.FsconfigSetFlag(fs, controller); err != nil {
			return nil, fmt.Errorf("mount %s %s: %w", kind, controller, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("mount %s %s: %w", kind, controller, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount %s %s: %w", kind, controller, err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(kind, controller)), nil
}
