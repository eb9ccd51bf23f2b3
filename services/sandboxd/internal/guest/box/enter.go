package box

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/bound"
)

// Enter makes the calling process the first process of a box. It returns what is weaker than it should be; a required
// part that cannot be made is a *PartError. The process must have namespaces of its own (user, mount, process, ipc, uts
// and network) and all capabilities in them. Mounts that the launcher left to it are opened, and their descriptors
// filled in.
func Enter(spec *Spec) (weaker []string, err error) {
	for _, m := range []*Mount{&spec.Guest.Control, &spec.Command.Cgroup} {
		if err := m.open(spec.Isolated); err != nil {
			return nil, &PartError{Part: "control folder", Err: err}
		}
	}
	if !spec.Isolated {
		return nil, limits(spec.Limits)
	}
	var (
		trees, devices []int
		r              *root
	)
	parts := []struct {
		name string
		make func() error
	}{
		{"mount namespace", func() error {
			return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}},
		{"system folders", func() error { trees, err = openTrees(spec.Trees); return err }},
		{"devices", func() error { devices, err = openDevices(spec.Devices); return err }},
		{"private root", func() error { r, err = newRoot(spec.RootBytes, spec.Inodes); return err }},
		{"private root", func() error { return r.folders(spec.Folders) }},
		{"private root", func() error { return r.files(spec.Files, spec.Links) }},
		{"system folders", func() error { return r.trees(spec.Trees, trees) }},
		{"own /dev", func() error { return r.dev(spec.Devices, devices, spec.TerminalGroup) }},
		{"own /proc", func() error { return r.proc(spec.ProcFD) }},
		{"pivot_root", func() error { return r.enter() }},
		{"uts namespace", func() error { return unix.Sethostname([]byte(spec.Hostname)) }},
		{"network namespace", loopback},
		{"limits", func() error { return limits(spec.Limits) }},
	}
	for _, p := range parts {
		if err := p.make(); err != nil {
			if r != nil {
				err = spec.OwnDisk(err)
			}
			return nil, &PartError{Part: p.name, Err: err}
		}
	}
	r.at = "/"
	if weaker, err = boundUsers(); err != nil {
		return nil, &PartError{Part: "limits", Err: err}
	}
	if err := r.coverProc(); err != nil {
		return nil, &PartError{Part: "own /proc", Err: err}
	}
	for _, own := range spec.Fixed {
		if err := fix(r.path(own)); err != nil {
			return nil, &PartError{Part: "private root", Err: err}
		}
	}
	return weaker, nil
}

// OwnDisk returns the error of a write to the private root. One that is full is as small as it was asked for, which is
// no shortage of the machine.
func (s *Spec) OwnDisk(err error) error {
	if s.Isolated && errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("a disk of %d bytes and %d files is too small for the box itself: %s", s.RootBytes, s.Inodes, err.Error())
	}
	return err
}

// UserLimits bound what each user of a box takes of counters of the whole machine, and that no command leaves a core.
func UserLimits() []Limit {
	return []Limit{
		{Resource: unix.RLIMIT_CORE, Value: 0},
		{Resource: unix.RLIMIT_SIGPENDING, Value: bound.BoxPendingSignals},
		{Resource: unix.RLIMIT_MSGQUEUE, Value: bound.BoxMessageQueueBytes},
		{Resource: unix.RLIMIT_MEMLOCK, Value: bound.BoxLockedBytes},
	}
}

// Possible lowers limits to what this process may have.
func Possible(limits []Limit) []Limit {
	var out []Limit
	for _, l := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.Resource, &now); err == nil {
			out = append(out, Limit{Resource: l.Resource, Value: min(l.Value, now.Max)})
		}
	}
	return out
}

func limits(limits []Limit) error {
	for _, l := range Possible(limits) {
		if err := unix.Setrlimit(l.Resource, &unix.Rlimit{Cur: l.Value, Max: l.Value}); err != nil {
			return fmt.Errorf("limit %d: %w", l.Resource, err)
		}
	}
	return nil
}
