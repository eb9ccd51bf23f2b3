package box

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The guest keeps capabilities over the box alone.
var (
	// tendCaps are to end commands and to read the mark of a process.
	tendCaps = []uint{unix.CAP_KILL, unix.CAP_SETPCAP, unix.CAP_SYS_NICE}
	// switchCaps are to start commands as another user, to bound them, and to read and write files for any user of the box. A guest
	// that is not root acts for itself alone.
	switchCaps = []uint{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SYS_RESOURCE}
)

type capHeader struct {
	version uint32
	pid     int32
}

type capData [2]struct{ effective, permitted, inheritable uint32 }

// Confine takes every capability away that the guest does not need, on all threads, and makes the process unreadable to commands.
// Capabilities that it lacks already are no error.
func Confine() error {
	var have, want capData
	hdr := capHeader{version: unix.LINUX_CAPABILITY_VERSION_3}
	if _, _, errno := syscall.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&have)), 0); errno != 0 {
		return fmt.Errorf("read capabilities: %w", errno)
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
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&want)), 0); errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	runtime.KeepAlive(&hdr)
	runtime.KeepAlive(&want)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the guest unreadable: %w", err)
	}
	return nil
}

// HardenThread prepares the calling thread, from which commands are forked: what it gives up here, no command ever has.
// The filter is optional; where the kernel lacks it, HardenThread says so in its first result.
func HardenThread(c Command) (weaker []string, err error) {
	if c.TasksFD > 0 {
		if _, err := unix.Write(c.TasksFD, []byte("0")); err != nil {
			return nil, &PartError{Part: "cgroup of commands", Err: err}
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, &PartError{Part: "no_new_privs", Err: err}
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// EINVAL: a capability that this kernel does not know. EPERM: the launcher had no CAP_SETPCAP, so there is nothing to lose.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL && err != unix.EPERM {
			return nil, &PartError{Part: "capabilities", Err: err}
		}
	}
	if err := filterSystemCalls(); err != nil {
		weaker = append(weaker, "system call filter: none ("+err.Error()+")")
	}
	return weaker, nil
}
