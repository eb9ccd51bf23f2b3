package box

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Enter makes the calling process the first process of a box. It gives what is weaker than it should be; a part that is needed
// and cannot be made is a *PartError. The process must have namespaces of its own (user, mount, process, ipc, uts and network)
// and all capabilities in them.
func Enter(spec Spec) (weaker []string, err error) {
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
			return nil, &PartError{Part: p.name, Err: err}
		}
	}
	r.at = "/"
	if err := noNestedNamespaces(); err != nil {
		weaker = append(weaker, "nested namespaces: not forbidden ("+err.Error()+")")
	}
	if err := r.coverProc(); err != nil {
		return nil, &PartError{Part: "own /proc", Err: err}
	}
	return weaker, nil
}

func limits(limits []Limit) error {
	for _, l := range limits {
		if err := unix.Setrlimit(l.Resource, &unix.Rlimit{Cur: l.Value, Max: l.Value}); err != nil {
			return fmt.Errorf("limit %d: %w", l.Resource, err)
		}
	}
	return nil
}
