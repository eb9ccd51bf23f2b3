package box

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The guest keeps capabilities over the box alone.
var (
	// tendCaps are to end commands.
	tendCaps = []uint{unix.CAP_KILL, unix.CAP_SETPCAP}
	// switchCaps are to start commands as another user, to bound them, and to read and write files for any user of the
	// box. A guest that is not root acts for itself alone.
	switchCaps = []uint{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SYS_RESOURCE}
)

type capHeader struct {
	version uint32
	pid     int32
}

type capData [2]struct{ effective, permitted, inheritable uint32 }

// Confine drops all capabilities that the guest does not need, on all threads, and makes the process unreadable to
// commands. Capabilities that it already lacks are no error; every other error is a *PartError.
func Confine() error {
	var have, want capData
	hdr := capHeader{version: unix.LINUX_CAPABILITY_VERSION_3}
	if _, _, errno := syscall.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&have)), 0); errno != 0 {
		return &PartError{Part: "capabilities", Err: fmt.Errorf("read capabilities: %w", errno)}
	}
	keep := tendCaps
	if unix.Geteuid() == 0 {
		keep = slices.Concat(tendCaps, switchCaps)
	}
	for _, c := range keep {
		bit := uint32(1) << (c % 32) & have[c/32].permitted
		want[c/32].permitted |= bit
		want[c/32].effective |= bit
	}
	// Not inheritable, so the ambient set, by which an unprivileged launcher gave them, is emptied with it.
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&want)), 0); errno == unix.ENOTSUP {
		return &PartError{Part: GuestProgram, Err: errors.New("it was built with cgo, where it cannot take capabilities from all of its threads")}
	} else if errno != 0 {
		return &PartError{Part: "capabilities", Err: fmt.Errorf("drop capabilities: %w", errno)}
	}
	runtime.KeepAlive(&hdr)
	runtime.KeepAlive(&want)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return &PartError{Part: "capabilities", Err: fmt.Errorf("make the guest unreadable: %w", err)}
	}
	return nil
}

// HardenThread prepares the calling thread, which forks the commands: no command ever has what the thread gives up
// here. A command can be given the capabilities in keep. weaker names what is missing. The filter of system calls is
// required unless c allows it to be missing and the kernel has no filters.
func HardenThread(c Command, keep ...uintptr) (weaker []string, err error) {
	for _, fd := range c.TasksFDs {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			return nil, &PartError{Part: "cgroup of commands", Err: err}
		}
	}
	if c.Processors > 0 {
		if err := boundProcessors(c.Processors); err != nil {
			return nil, &PartError{Part: "processors", Err: err}
		}
	}
	if c.HideCgroups {
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); Transient(err) {
			return nil, &PartError{Part: "cgroup namespace", Err: err}
		} else if err != nil {
			weaker = append(weaker, "cgroup namespace: none ("+err.Error()+")")
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, &PartError{Part: "no_new_privs", Err: err}
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(keep, c) {
			continue
		}
		// EINVAL: a capability that this kernel does not know. EPERM: the launcher had no CAP_SETPCAP, so there is
		// nothing to lose.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL && err != unix.EPERM {
			return nil, &PartError{Part: "capabilities", Err: err}
		}
	}
	if err := filterSystemCalls(c); err != nil {
		if !c.MayLackFilter || !noFilters(err) {
			return nil, &PartError{Part: "system call filter", Err: err}
		}
		weaker = append(weaker, "system call filter: none ("+err.Error()+")")
	}
	return weaker, nil
}

// noFilters reports whether an error means that the kernel has no filters of system calls (prctl(2), PR_SET_SECCOMP),
// or that the launcher allows it none. A kernel without room for one more filter is another error.
func noFilters(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM)
}

// boundProcessors lets the calling thread, and what it forks, run on n of the processors that it may run on, chosen at
// random.
func boundProcessors(n int) error {
	var may, chosen unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("read the processors: %w", err)
	}
	var list []int
	for cpu := range len(may) * int(unsafe.Sizeof(may[0])) * 8 {
		if may.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	for _, i := range rand.Perm(len(list))[:min(n, len(list))] { //nolint:gosec // which ones is no secret
		chosen.Set(list[i])
	}
	if err := unix.SchedSetaffinity(0, &chosen); err != nil {
		return fmt.Errorf("bound the processors: %w", err)
	}
	return nil
}
