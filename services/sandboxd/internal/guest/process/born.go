package process

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A birth makes a process as vfork does: the child borrows this program's memory until it executes its own program, and all that
// it does before is a list of system calls, so that no Go code runs in it. Against syscall.ForkExec that saves a pipe that tells of
// failure, a second sleep of the thread that forks, and a system call for every signal that this program handles; docs/adr/0018 tells more.
//
// Other processes of the sandbox may stop the child before it executes its program, or lock that, as soon as they have its user. So the
// thread waits as any blocking call of Go does, and a timer continues or kills the child. To wait by vfork is what keeps the kernel, when
// memory ends, from taking the child for a victim, and with it all that has its memory: the guest.
//
// The child closes the guest's descriptors before it enters its working directory: a path through /proc that leads to one of them
// leads nowhere. What it opens next is the folder, at the first number that is free.
type birth struct {
	first  call
	calls  [maxCalls]call
	count  int
	clone  cloneArgs
	pidfd  int32
	child  int32   // its id while it has this program's memory; set and cleared by the kernel
	failed uintptr // the error number of the call that failed, written by the child
	mask   uint64  // the signals that this thread blocks

	// What calls points to, for the collector.
	path, dir *byte
	argv, env []*byte
	groups    []uint32
	limits    []Limit
	rlimits   []unix.Rlimit // of limits
	how       unix.OpenHow
	byDefault signalAction
	capHeader unix.CapUserHeader
	capData   [2]unix.CapUserData
}

// call is a system call.
type call struct {
	number uintptr
	args   [5]uintptr
}

// maxCalls is more than a birth has: one for every signal, and the rest.
const maxCalls = lastSignal + 24 + maxLimits

// maxLimits is how many kinds of limits there are.
const maxLimits = 16

// firstFree is the first descriptor that is neither of the three that a command has.
const firstFree = 3

// lastSignal is the greatest number of a signal.
const lastSignal = 64

// signalAction begins as the kernel's struct sigaction, whose zero value is the default action.
type signalAction struct {
	handler uintptr
	rest    [56]byte
}

// defaultAction and ignoreAction are handlers that are no functions.
const (
	defaultAction = 0
	ignoreAction  = 1
)

// cloneArgs is the kernel's struct clone_args.
type cloneArgs struct {
	flags      uint64
	pidFD      uint64
	childID    uint64 // where the child's id is while it has the memory
	_          uint64 // where to write the child's id
	exitSignal uint64
	_          [5]uint64 // the stack, which is the parent's; thread-local storage; ids to take
	cgroup     uint64
}

// born makes a child by the first call and has it make the calls, the last of which is execve. It gives the child's id, or the
// kernel's negative error number where there is none. It returns when the child has its own program, or has failed and ended.
//
//go:noescape
func born(first, calls *call, failed *uintptr) (pid uintptr)

// errNoClone3 says that this kernel or its filter has no clone3 that does what is asked for. That came with Linux 5.5, into a cgroup
// with 5.7; engines that cannot look into clone3 deny that it exists.
const errNoClone3 = syscall.ENOSYS

// way is what this kernel and its filter let a birth use.
type way struct {
	// clone: there is no clone3. The child takes the signals' handlers back itself, and there is no birth into a cgroup.
	clone bool
	// chdir: there is no openat2. The working directory may be a link of /proc, though not to anything of the guest.
	chdir bool
	// patience is how long a start may be held up. Zero is startPatience.
	patience time.Duration
}

// findWay looks for what the calling thread may use, but for clone3. It fails where a child could not be kept from the guest's descriptors.
func findWay() (w way, err error) {
	if err := unix.CloseRange(math.MaxUint32, math.MaxUint32, 0); err != nil {
		return w, fmt.Errorf("close descriptors (Linux 5.9 can, and an engine's filter must let it): %w", err)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return way{chdir: true}, nil //nolint:nilerr // that is the answer
	}
	unix.Close(fd)
	return w, nil
}

// bear starts a process. The caller has its thread for itself.
func (b *birth) bear(c Command, cgroup int, w way) (pid, fd int, err error) {
	if w.clone && cgroup > 0 {
		return 0, -1, errNoClone3
	}
	if err := b.prepare(c, w); err != nil {
		return 0, -1, err
	}
	b.pidfd, b.child, b.failed = -1, 0, 0
	child := uint64(uintptr(unsafe.Pointer(&b.child)))
	b.clone = cloneArgs{
		flags: birthFlags | unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(unix.SIGCHLD), pidFD: uint64(uintptr(unsafe.Pointer(&b.pidfd))), childID: child,
	}
	if cgroup > 0 {
		b.clone.flags |= unix.CLONE_INTO_CGROUP
		b.clone.cgroup = uint64(cgroup)
	}
	b.first = call{unix.SYS_CLONE3, [5]uintptr{uintptr(unsafe.Pointer(&b.clone)), unsafe.Sizeof(b.clone)}}
	if w.clone {
		// Where its id is written is the fourth argument or the fifth; the other one is not looked at.
		b.first = call{unix.SYS_CLONE, [5]uintptr{birthFlags | uintptr(unix.SIGCHLD), 0, uintptr(unsafe.Pointer(&b.pidfd)), uintptr(child), uintptr(child)}}
	}
	late := watch(&b.child, cmp.Or(w.patience, startPatience))
	// A signal in the child would be handled on the parent's stack.
	all := ^uint64(0)
	setMask(&all, &b.mask)
	r := bornBlocking(&b.first, &b.calls[0], &b.failed)
	setMask(&b.mask, nil)
	heldUp := late.stop()
	runtime.KeepAlive(b)

	if code := -int(r); code > 0 {
		if syscall.Errno(code) == syscall.EINVAL && !w.clone {
			return 0, -1, errNoClone3
		}
		return 0, -1, syscall.Errno(code)
	}
	pid, fd = int(r), int(b.pidfd)
	switch {
	case b.failed != 0:
		err = syscall.Errno(b.failed)
	case heldUp:
		err = ErrHeldUp
	default:
		return pid, fd, nil
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	if fd >= 0 {
		unix.Close(fd)
	}
	return 0, -1, err
}

// birthFlags have the child use this program's memory, which waits until it is given back, and give a descriptor of the child.
const birthFlags = unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PIDFD | unix.CLONE_CHILD_SETTID | unix.CLONE_CHILD_CLEARTID

// bornBlocking is born for a call that may block: other goroutines run meanwhile, as in syscall.Syscall.
//
//go:nosplit
func bornBlocking(first, calls *call, failed *uintptr) uintptr {
	enterSyscall()
	pid := born(first, calls, failed)
	exitSyscall()
	return pid
}

//go:linkname enterSyscall runtime.entersyscall
func enterSyscall()

//go:linkname exitSyscall runtime.exitsyscall
func exitSyscall()

// How long a child may take until it executes its program: after lateStart it is continued again and again, in case somebody has stopped
// it; after startPatience it is killed.
const (
	lateStart     = 10 * time.Millisecond
	startPatience = 5 * time.Second
	// slowStart is for a child that is not held up by others: it waits for the machine.
	slowStart = time.Minute
)

// ErrHeldUp is why a program was not executed: the child was stopped over and over, or its file was locked (F_SETLEASE).
var ErrHeldUp = errors.New("it did not begin within " + startPatience.String() + ": a process of the sandbox stops it, or has a lease of its file")

// watcher sees to it that a birth comes to an end.
type watcher struct {
	mu       sync.Mutex
	child    *int32 // its id while it is being born; nil once the birth is over
	timer    *time.Timer
	patience int // looks until a child that is held up is killed
	looks    int // not time, which passes for a machine that stands still
	killed   bool
}

// watch watches over the birth of a child. The caller stops it before the child can be reaped.
func watch(child *int32, patience time.Duration) *watcher {
	w := &watcher{child: child, patience: int(patience / lateStart)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(lateStart, w.look)
	return w
}

func (w *watcher) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.child == nil {
		return
	}
	if pid := int(atomic.LoadInt32(w.child)); pid > 0 {
		signal := syscall.SIGCONT
		w.looks++
		if w.killed || w.looks > w.patience && (heldUp(pid) || w.looks > int(slowStart/lateStart)) {
			w.killed, signal = true, syscall.SIGKILL
		}
		_ = syscall.Kill(pid, signal)
	}
	w.timer.Reset(lateStart)
}

// heldUp reports whether somebody holds up a child: it is stopped or traced, or waits in its sleep, as for a lease. One that runs, or
// waits for a disk, is only slow.
func heldUp(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	s, ok := parseStat(string(text))
	return err == nil && ok && strings.IndexByte("TtS", s.state) >= 0
}

// stop ends the watching and tells whether the child was killed.
func (w *watcher) stop() (killed bool) {
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.child = nil
	return w.killed
}

// prepare lists what the child does.
func (b *birth) prepare(c Command, w way) (err error) {
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
	if w.clone {
		b.forgetHandlers()
	}
	b.then(unix.SYS_SETSID)
	if u := c.User; u != nil {
		b.groups = append(b.groups[:0], u.Groups...)
		b.then(unix.SYS_SETGROUPS, uintptr(len(b.groups)), address(unsafe.SliceData(b.groups)))
		b.then(unix.SYS_SETGID, uintptr(u.GID))
		b.become(u)
	}
	for i, fd := range c.Files {
		if int(fd) < len(c.Files) {
			return syscall.EBADF // dup3 would close another before it is given
		}
		b.then(unix.SYS_DUP3, fd, uintptr(i), 0)
	}
	b.then(unix.SYS_CLOSE_RANGE, firstFree, math.MaxUint32, 0)
	if w.chdir {
		b.then(unix.SYS_CHDIR, address(b.dir))
	} else {
		at := unix.AT_FDCWD
		b.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
		b.then(unix.SYS_OPENAT2, uintptr(at), address(b.dir), uintptr(unsafe.Pointer(&b.how)), unsafe.Sizeof(b.how))
		b.then(unix.SYS_FCHDIR, firstFree)
	}
	for i, l := range b.limits {
		b.then(unix.SYS_PRLIMIT64, 0, uintptr(l.Resource), address(&b.rlimits[i]), 0)
	}
	b.then(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, address(&b.mask), 0, unsafe.Sizeof(b.mask))
	b.then(unix.SYS_EXECVE, address(b.path), address(unsafe.SliceData(b.argv)), address(unsafe.SliceData(b.env)))
	return nil
}

// bound has all children begin with these limits, or lower ones where this program has no right to as much.
func (b *birth) bound(limits []Limit) {
	for _, l := range limits {
		var now unix.Rlimit
		if l.Value == 0 || unix.Getrlimit(l.Resource, &now) != nil {
			continue
		}
		value := min(l.Value, now.Max)
		b.limits, b.rlimits = append(b.limits, l), append(b.rlimits, unix.Rlimit{Cur: value, Max: value})
	}
}

// forgetHandlers has the child forget the handlers of signals, which are this program's, before any signal can come.
func (b *birth) forgetHandlers() {
	for s := uintptr(1); s <= lastSignal; s++ {
		var now signalAction
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, s, 0, uintptr(unsafe.Pointer(&now)), unsafe.Sizeof(b.mask), 0, 0)
		if errno == 0 && now.handler != defaultAction && now.handler != ignoreAction {
			b.then(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&b.byDefault)), 0, unsafe.Sizeof(b.mask))
		}
	}
}

// become makes the child the user. Capabilities that it shall have outlive the change and, being ambient, execve. With the user changes
// whether the memory, which is this program's until execve, may be dumped (fs.suid_dumpable); it must not.
func (b *birth) become(u *Credential) {
	if len(u.Capabilities) == 0 {
		b.then(unix.SYS_SETUID, uintptr(u.UID))
		b.then(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
		return
	}
	b.capHeader = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	b.capData = [2]unix.CapUserData{}
	for _, c := range u.Capabilities {
		d := &b.capData[c/32]
		d.Permitted |= 1 << (c % 32)
		d.Effective, d.Inheritable = d.Permitted, d.Permitted
	}
	b.then(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1)
	b.then(unix.SYS_SETUID, uintptr(u.UID))
	b.then(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	b.then(unix.SYS_CAPSET, address(&b.capHeader), address(&b.capData[0]))
	for _, c := range u.Capabilities {
		b.then(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c)
	}
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
