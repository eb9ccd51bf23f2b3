package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// headroom is how many more processes the guest has than its commands, so that a fork bomb does not stop it.
const headroom = 64

const cpuPeriod = 100_000 // µs

// groupRef identifies a cgroup for later processes: its tree and its path from the tree's mount.
type groupRef struct{ Tree, Path string }

// group is the cgroup of a box that is being made: one for the guest and one for its commands, side by side. The bounds
// of commands do not bound, slow or end the guest.
type group struct {
	refs   []groupRef // children first
	enter  []string   // `cgroup.procs` files for the guest
	tasks  []string   // v1: `tasks` files for the thread that starts commands
	born   string     // v2: folder that commands are born into
	events string     // counts kills of commands for memory
	parts  []string
	weaker []string
	cpu    bool // their share of the processors is bounded
}

// share is what a box may use.
type share struct {
	driver.Limits
	// guestBytes bounds the memory of the guest, with the files that it writes.
	guestBytes int64
}

// create makes the groups of a box and sets its bounds; owner is who the guest is to this machine.
func (c *cgroups) create(ctx context.Context, id string, s share, owner int) (*group, error) {
	g := &group{parts: []string{"cgroup memory", "cgroup pids"}}
	var err error
	if _, v2 := c.trees[unified]; v2 {
		err = c.createV2(g, id, s, owner)
	} else {
		err = c.createV1(g, id, s)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the cgroups of a box: %w", err), c.remove(ctx, g.refs))
	}
	return g, nil
}

// add makes one group below the folder of all boxes.
func (c *cgroups) add(g *group, tree string, names ...string) (folder string, err error) {
	path := filepath.Join(append([]string{c.base[tree]}, names...)...)
	g.refs = append([]groupRef{{tree, path}}, g.refs...)
	folder = c.path(tree, path)
	return folder, os.Mkdir(folder, 0o755)
}

// ranOut reports whether the kernel killed the guest of a box for lack of memory: in the guest's group, where it is
// alone, or in the whole machine.
func (c *cgroups) ranOut(refs []groupRef) bool {
	for _, ref := range refs {
		for _, file := range []string{"memory.oom_control", "memory.events"} { // of version 1, of version 2
			data, err := os.ReadFile(filepath.Join(c.path(ref.Tree, ref.Path), file))
			if err == nil && filepath.Base(ref.Path) == guestGroup && killed.Match(data) {
				return true
			}
		}
	}
	return false
}

// killed fits the count of kills for memory where there were some.
var killed = regexp.MustCompile(`(?m)^oom_kill [1-9]`)

// guestGroup and workGroup are the groups of a box, below its own.
const (
	guestGroup = "guest"
	workGroup  = "work"
)

// named are all groups that a box of that id can have, children first.
func (c *cgroups) named(id string) []groupRef {
	var refs []groupRef
	for tree, base := range c.base {
		for _, name := range []string{filepath.Join(id, workGroup), filepath.Join(id, guestGroup), id} {
			refs = append(refs, groupRef{tree, filepath.Join(base, name)})
		}
	}
	return refs
}

func (c *cgroups) createV1(g *group, id string, s share) error {
	if _, err := c.add(g, "memory", id); err != nil {
		return err
	}
	guest, err := c.add(g, "memory", id, guestGroup)
	if err != nil {
		return err
	}
	memory, err := c.add(g, "memory", id, workGroup)
	if err != nil {
		return err
	}
	pids, err := c.add(g, "pids", id)
	if err != nil {
		return err
	}
	work, err := c.add(g, "pids", id, workGroup)
	if err != nil {
		return err
	}
	g.enter = []string{filepath.Join(guest, "cgroup.procs"), filepath.Join(pids, "cgroup.procs")}
	g.tasks = []string{filepath.Join(memory, "tasks"), filepath.Join(work, "tasks")}
	g.events = filepath.Join(memory, "memory.oom_control")
	if err := g.boundMemoryV1(memory, guest, s); err != nil {
		return err
	}
	if err := setPIDs(pids, work, s.PIDs); err != nil {
		return err
	}
	if s.CPUMillis <= 0 {
		return nil
	}
	if _, ok := c.trees["cpu"]; !ok {
		g.weaker = append(g.weaker, unboundedCPU(errors.New("there is no cpu cgroup")))
		return nil
	}
	cpu, err := c.add(g, "cpu", id)
	if err != nil {
		return err
	}
	// The kernel rejects a share above that of an ancestor group, which then bounds the box too.
	if err := errors.Join(set(cpu, "cpu.cfs_period_us", cpuPeriod), set(cpu, "cpu.cfs_quota_us", s.CPUMillis*cpuPeriod/1000)); box.Transient(err) {
		return err
	} else if err != nil {
		g.weaker = append(g.weaker, unboundedCPU(err))
		return nil
	}
	g.tasks = append(g.tasks, filepath.Join(cpu, "tasks"))
	g.boundsCPU()
	return nil
}

// boundMemoryV1 bounds the memory of commands and that of the guest, where the box is bounded.
func (g *group) boundMemoryV1(work, guest string, s share) error {
	if s.MemoryBytes <= 0 {
		return nil
	}
	buffers, err := setMemoryV1(work, s.MemoryBytes)
	if err != nil {
		return err
	}
	if !buffers {
		g.weaker = append(g.weaker, "memory: buffers of TCP sockets are not bounded, since this kernel's cgroups of version 1 do not count them")
	}
	_, err = setMemoryV1(guest, s.guestBytes)
	return err
}

// setMemoryV1 bounds memory, and the buffers of TCP and UDP sockets, which are counted apart, by as much again. Where
// the kernel counts swap, that is part of the bound. It reports whether buffers are bounded, which takes a kernel that
// counts them.
func setMemoryV1(folder string, bytes int64) (buffers bool, err error) {
	if err := set(folder, "memory.limit_in_bytes", bytes); err != nil {
		return false, err
	}
	if err := set(folder, "memory.memsw.limit_in_bytes", bytes); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	err = set(folder, "memory.kmem.tcp.limit_in_bytes", bytes)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (g *group) boundsCPU() {
	g.cpu, g.parts = true, append(g.parts, "cgroup cpu")
}

func (c *cgroups) createV2(g *group, id string, s share, owner int) error {
	top, err := c.add(g, unified, id)
	if err != nil {
		return err
	}
	if err := enable(top); err != nil {
		return err
	}
	guest, err := c.add(g, unified, id, guestGroup)
	if err != nil {
		return err
	}
	work, err := c.add(g, unified, id, workGroup)
	if err != nil {
		return err
	}
	// Giving birth into a group takes the right to move a process there, and that of the group above both.
	for _, folder := range []string{top, work} {
		if err := os.Chown(filepath.Join(folder, "cgroup.procs"), owner, owner); err != nil {
			return err
		}
	}
	g.enter = []string{filepath.Join(guest, "cgroup.procs")}
	g.born = work
	g.events = filepath.Join(work, "memory.events")
	if s.MemoryBytes > 0 {
		if err := errors.Join(setMemoryV2(work, s.MemoryBytes), setMemoryV2(guest, s.guestBytes)); err != nil {
			return err
		}
	}
	if err := setPIDs(top, work, s.PIDs); err != nil {
		return err
	}
	if s.CPUMillis <= 0 {
		return nil
	}
	if err := put(filepath.Join(work, "cpu.max"), fmt.Sprintf("%d %d", s.CPUMillis*cpuPeriod/1000, cpuPeriod)); box.Transient(err) {
		return err
	} else if err != nil {
		g.weaker = append(g.weaker, unboundedCPU(err))
		return nil
	}
	g.boundsCPU()
	return nil
}

// setMemoryV2 bounds memory, without swap.
func setMemoryV2(folder string, bytes int64) error {
	if err := set(folder, "memory.max", bytes); err != nil {
		return err
	}
	if err := set(folder, "memory.swap.max", 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// unboundedCPU describes what a box has in place of a share of the processors.
func unboundedCPU(err error) string {
	return "cpu: a number of whole processors instead of a share of a cgroup (" + err.Error() + ")"
}

// setPIDs bounds the commands, and the box with the guest's own threads.
func setPIDs(box, work string, limit int64) error {
	if limit <= 0 {
		return nil
	}
	return errors.Join(set(box, "pids.max", limit+headroom), set(work, "pids.max", limit))
}

// admit moves a process into the box's groups.
func (g *group) admit(pid int) error {
	for _, file := range g.enter {
		if err := put(file, strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move the guest into its cgroup: %w", err)
		}
	}
	return nil
}

// remove kills the processes that are left in groups and removes the groups. Groups that no longer exist are no error.
func (c *cgroups) remove(ctx context.Context, refs []groupRef) error {
	for end := time.Now().Add(10 * time.Second); ; {
		var err error
		for _, ref := range refs {
			folder := c.path(ref.Tree, ref.Path)
			_ = put(filepath.Join(folder, "cgroup.kill"), "1") // v2 alone has it
			if e := os.Remove(folder); e != nil && !errors.Is(e, os.ErrNotExist) {
				err = fmt.Errorf("remove a cgroup: %w", e)
			}
		}
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func set(folder, file string, value int64) error {
	return put(filepath.Join(folder, file), strconv.FormatInt(value, 10))
}

// put writes to a file of the kernel, which must exist.
func put(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
