package local

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// isolated are the namespaces of a box.
const isolated = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET

// Users of boxes are numbered so to the rest of the machine: a range of 65,536 for each box, chosen by its id.
const (
	firstRange = 0x7000_0000
	rangeSize  = 65_536
	ranges     = 4096
)

func rangeOf(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return firstRange + int(h.Sum32()%ranges)*rangeSize
}

// attributes are how the guest is cloned: as root, with a range of users of its own; else as the one user that can be
// mapped.
func (d *Driver) attributes(p plan) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if !p.namespaces {
		return a
	}
	a.Cloneflags = isolated
	if d.many {
		base := rangeOf(p.spec.ID)
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: rangeSize}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: rangeSize}}
		a.GidMappingsEnableSetgroups = true
		a.Credential = &syscall.Credential{Uid: 0, Gid: 0}
		return a
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: userID, HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: userID, HostID: os.Getegid(), Size: 1}}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		a.AmbientCaps = append(a.AmbientCaps, c) // over the box alone; the guest gives them up when the box is built
	}
	return a
}

// refused is the error of a guest that could not be cloned into its namespaces. The kernel returns the same error for a
// kind of namespace that is forbidden and for one of which there are too many now.
func (d *Driver) refused(ctx context.Context, err error) *box.PartError {
	if !box.Transient(err) {
		return &box.PartError{Part: d.missingNamespace(ctx), Err: err}
	}
	if errors.Is(err, unix.ENOSPC) {
		for _, n := range namespaces {
			if forbidden(n.kind) {
				return &box.PartError{Part: n.name, Err: fmt.Errorf("%s, as user.max_%s_namespaces is 0", err.Error(), n.kind)}
			}
		}
	}
	return &box.PartError{Part: "namespaces", Err: err}
}

// forbidden reports whether this machine allows no namespaces of a kind.
func forbidden(kind string) bool {
	most, err := os.ReadFile("/proc/sys/user/max_" + kind + "_namespaces")
	return err == nil && strings.TrimSpace(string(most)) == "0"
}

// namespaces are those of a box, in the order in which they are tried.
var namespaces = []struct {
	flag       uintptr
	name, kind string
}{
	{syscall.CLONE_NEWUSER, "user namespace", "user"},
	{syscall.CLONE_NEWNS, "mount namespace", "mnt"},
	{syscall.CLONE_NEWPID, "process namespace", "pid"},
	{syscall.CLONE_NEWIPC, "ipc namespace", "ipc"},
	{syscall.CLONE_NEWUTS, "uts namespace", "uts"},
	{syscall.CLONE_NEWNET, "network namespace", "net"},
}

// missingNamespace finds which namespace this machine refuses.
func (d *Driver) missingNamespace(ctx context.Context) string {
	flags := uintptr(0)
	for _, n := range namespaces {
		flags |= n.flag
		cmd := exec.CommandContext(ctx, d.guest.Path, "version")
		cmd.Env = []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if err := cmd.Run(); err != nil {
			return n.name
		}
	}
	return "users of its own"
}
