package process

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A birth makes a process as vfork does: the child borrows this program's memory until it executes its own program, and all that
// it does before is a list of system calls, so that no Go code runs in it. Against syscall.ForkExec that saves a pipe that tells of
// failure, a second sleep of the thread that forks, and a system call for every signal that this program handles; docs/adr/0018 tells more.
type birth struct {
	calls  [maxCalls]call
	count  int
	clone  cloneArgs
	pidfd  int32
	failed uintptr // the error number of the call that failed, written by the child
	mask   uint64  // the signals that this thread blocks

	// What calls points to, for the collector.
	path, dir *byte
	argv, env []*byte
	groups    []uint32
}

// call is a system call.
type call struct {
	number uintptr
	args   [4]uintptr
}

// maxCalls is more than a birth has.
const maxCalls = 12

// cloneArgs is the kernel's struct clone_args.
type cloneArgs struct {
	flags      uint64
	pidFD      uint64
	_          [2]uint64 // where to write thread ids
	exitSignal uint64
	_          [5]uint64 // the stack, which is the parent's; thread-local storage; ids to take
	cgroup     uint64
}

// born makes a child that makes the calls, the last of which is execve. It gives the child's id, or the kernel's negative error number
// where there is none. It returns when the child has its own program, or has failed and ended.
//
//go:noescape
func born(args *cloneArgs, size uintptr, calls *call, failed *uintptr) (pid uintptr)

// errNoBirth says that this kernel or its filter does not know births. They came with Linux 5.5, into a cgroup with 5.7; engines
// that cannot look into clone3 deny that it exists.
const errNoBirth = syscall.ENOSYS

// bear starts a process. The caller has its thread for itself.
func (b *birth) bear(c Command, cgroup int) (pid, fd int, err error) {
	if err := b.prepare(c); err != nil {
		return 0, -1, err
	}
	b.pidfd, b.failed = -1, 0
	b.clone = cloneArgs{
		flags: unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PIDFD | unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(unix.SIGCHLD),
		pidFD: uint64(uintptr(unsafe.Pointer(&b.pidfd))),
	}
	if cgroup > 0 {
		b.clone.flags |= unix.CLONE_INTO_CGROUP
		b.clone.cgroup = uint64(cgroup)
	}
	syscall.ForkLock.Lock()
	// A signal in the child would be handled on the parent's stack.
	all := ^uint64(0)
	setMask(&all, &b.mask)
	r := born(&b.clone, unsafe.Sizeof(b.clone), &b.calls[0], &b.failed)
	setMask(&b.mask, nil)
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(b)

	if code := -int(r); code > 0 {
		if syscall.Errno(code) == syscall.EINVAL {
			return 0, -1, errNoBirth
		}
		return 0, -1, syscall.Errno(code)
	}
	pid, fd = int(r), int(b.pidfd)
	if b.failed != 0 {
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		unix.Close(fd)
		return 0, -1, syscall.Errno(b.failed)
	}
	return pid, fd, nil
}

// prepare lists what the child does.
func (b *birth) prepare(c Command) (err error) {
	if b.path, err = syscall.BytePtrFromString(c.Path); err != nil {
		return err
	}
	if b.dir, err = syscall.BytePtrFromString(c.Dir); err != nil {
		return err
	}
	if b.argv, err = syscall.SlicePtrFromStrings(c.Argv); err != nil {
		return err
	}
	if b.env, err = syscall.SlicePtrFromStrings(c.Env); err != nil {
		return err
	}
	b.count = 0
	b.then(unix.SYS_SETSID)
	if u := c.User; u != nil {
		b.groups = append(b.groups[:0], u.Groups...)
		b.then(unix.SYS_SETGROUPS, uintptr(len(b.groups)), address(unsafe.SliceData(b.groups)))
		b.then(unix.SYS_SETGID, uintptr(u.GID))
		b.then(unix.SYS_SETUID, uintptr(u.UID))
	}
	b.then(unix.SYS_CHDIR, address(b.dir))
	for i, fd := range c.Files {
		if int(fd) < len(c.Files) {
			return syscall.EBADF // dup3 would close another before it is given
		}
		b.then(unix.SYS_DUP3, fd, uintptr(i), 0)
	}
	b.then(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, address(&b.mask), 0, unsafe.Sizeof(b.mask))
	b.then(unix.SYS_EXECVE, address(b.path), address(unsafe.SliceData(b.argv)), address(unsafe.SliceData(b.env)))
	return nil
}

func (b *birth) then(number uintptr, args ...uintptr) {
	b.calls[b.count] = call{number: number}
	copy(b.calls[b.count].args[:], args)
	b.count++
}

// address is for what is on the heap, and stays there.
func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// setMask sets the signals that this thread blocks and gives those that it blocked.
func setMask(mask, old *uint64) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(mask)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(*mask), 0, 0)
}
