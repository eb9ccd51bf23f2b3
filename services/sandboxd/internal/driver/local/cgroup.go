package local

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// groupFolder is the folder of all boxes' cgroups.
const groupFolder = "evalfleet"

// cgroups is where this process may create cgroups for boxes.
type cgroups struct {
	// trees are the hierarchies that are used: the unified one alone, or those of v1.
	trees hierarchies
	// base is the folder of all boxes in each tree, as a path from the mount.
	base map[string]string
	// mounts are open for as long as the hierarchies are mounted by this process.
	mounts []*os.File
}

// findCgroups finds where memory and pids can be bounded: in the hierarchies as they are mounted, else in mounts of our
// own. If nowhere, the error has the reason.
func findCgroups(log *slog.Logger) (*cgroups, error) {
	mounted, err := mountedHierarchies()
	if err == nil {
		var c *cgroups
		if c, err = useHierarchies(mounted); err == nil {
			return c, nil
		}
	}
	if os.Geteuid() != 0 {
		return nil, err
	}
	log.Debug("the mounted cgroups cannot be used; mounting our own", "reason", err)
	c, mountErr := ownCgroups()
	if mountErr != nil {
		return nil, errors.Join(err, mountErr)
	}
	return c, nil
}

// ownCgroups uses hierarchies that this process mounts for itself.
func ownCgroups() (*cgroups, error) {
	ours, files, err := mountHierarchies()
	if err != nil {
		return nil, err
	}
	c, err := useHierarchies(ours)
	if err != nil {
		closeAll(files)
		return nil, err
	}
	c.mounts = files
	return c, nil
}

// abandoned is the age from which an empty cgroup is in no use: no creation takes so long.
const abandoned = 10 * time.Minute

// sweep removes groups that a crash left behind with nothing in them. A group with processes cannot be removed.
func (c *cgroups) sweep() {
	for controller := range c.trees {
		entries, err := os.ReadDir(c.path(controller, c.base[controller]))
		if err != nil {
			continue
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || !e.IsDir() || time.Since(info.ModTime()) < abandoned {
				continue
			}
			top := c.path(controller, filepath.Join(c.base[controller], e.Name()))
			for _, folder := range []string{filepath.Join(top, workGroup), filepath.Join(top, guestGroup), top} {
				_ = os.Remove(folder)
			}
		}
	}
}

// path is a group's folder on this machine.
func (c *cgroups) path(controller, group string) string {
	return filepath.Join(c.trees[controller].mount, group)
}

// useHierarchies makes the folder of all boxes in the unified hierarchy where that has the controllers, else in those
// of v1.
func useHierarchies(h hierarchies) (*cgroups, error) {
	var errs []error
	if tree, ok := h[unified]; ok {
		base, err := useV2(tree)
		if err == nil {
			return &cgroups{trees: hierarchies{unified: tree}, base: map[string]string{unified: base}}, nil
		}
		errs = append(errs, err)
	}
	c := &cgroups{trees: hierarchies{}, base: map[string]string{}}
	for _, controller := range controllers {
		base, err := useV1(h, controller)
		if err == nil {
			c.trees[controller], c.base[controller] = h[controller], base
		} else if controller != "cpu" || box.Transient(err) {
			return nil, errors.Join(append(errs, err)...)
		}
	}
	return c, nil
}

// useV1 makes a folder below this process's own group.
func useV1(h hierarchies, controller string) (base string, err error) {
	tree, ok := h[controller]
	if !ok {
		return "", fmt.Errorf("no cgroup hierarchy bounds %s: %w", controller, os.ErrNotExist)
	}
	return tree.firstUsable(func(parent string) error {
		folder := filepath.Join(tree.mount, parent, groupFolder)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		// The folder may belong to another user.
		trial, err := os.MkdirTemp(folder, "trial-")
		if err != nil {
			return err
		}
		return os.Remove(trial)
	})
}

// useV2 creates a folder whose children have the controllers. A group of v2 may hold processes, or groups with
// controllers, but not both, so this process moves into a group of its own if that helps. The machine's root group is
// exempt from the rule: if the root is subject to it, it is the root of a container, whose other processes move too.
func useV2(tree hierarchy) (base string, err error) {
	return tree.firstUsable(func(own string) error {
		parent := filepath.Join(tree.mount, own)
		err := enable(parent)
		if errors.Is(err, unix.EBUSY) {
			err = stepAside(parent, own == "/", enable)
		}
		if err != nil {
			return err
		}
		folder := filepath.Join(parent, groupFolder)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		return enable(folder)
	})
}

// stepAside moves this process, or all of the group, into a group below it and then enables the controllers. If that
// fails because processes stay behind, it moves them back.
func stepAside(parent string, all bool, enable func(folder string) error) error {
	aside := filepath.Join(parent, aside)
	if err := os.MkdirAll(aside, 0o755); err != nil {
		return err
	}
	var err error
	for range 10 { // in the meantime they may start others
		if err = move(parent, aside, all); err != nil {
			break
		}
		if err = enable(parent); !all || !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err != nil {
		err = errors.Join(err, move(aside, parent, all), os.Remove(aside))
	}
	return err
}

// move moves this process, or all of a group, to another group. What has ended meanwhile is no error.
func move(from, to string, all bool) error {
	processes := []string{strconv.Itoa(os.Getpid())}
	if all {
		data, err := os.ReadFile(filepath.Join(from, "cgroup.procs"))
		if err != nil {
			return err
		}
		processes = strings.Fields(string(data))
	}
	for _, pid := range processes {
		if err := put(filepath.Join(to, "cgroup.procs"), pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// enable enables memory and pids for the children of a v2 group, and cpu if possible.
func enable(folder string) error {
	control := filepath.Join(folder, "cgroup.subtree_control")
	if err := put(control, "+memory +pids"); err != nil {
		return err
	}
	if err := put(control, "+cpu"); box.Transient(err) { // a bound that not every box asks for
		return err
	}
	return nil
}

// aside is the group that a process moves into to make room for boxes beside it.
const aside = groupFolder + "-host"

// above returns the group of this process, or the group from which it moved aside before, so that boxes do not go down
// a level with every start.
func (h hierarchy) above() string {
	if filepath.Base(h.own) == aside {
		return filepath.Dir(h.own)
	}
	return h.own
}

// firstUsable tries the group of this process, then the root, and gives the folder of boxes in the first that works.
func (h hierarchy) firstUsable(try func(parent string) error) (string, error) {
	var errs []error
	for _, parent := range []string{h.above(), "/"} {
		err := try(parent)
		if err == nil {
			return filepath.Join(parent, groupFolder), nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}
