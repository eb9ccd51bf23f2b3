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

// A birth makes a process that has of this program's memory only what it needs until it executes its own program: this
// program's code, which is a file's, and a list of system calls with what they point to. All that it does is to make
// these calls, so that no Go code runs in it. Sharing all memory, as vfork does, is hardly faster, and when memory ends
// the kernel ends all processes that share memory together: the guest with its child. See docs/adr/0018.
//
// Other processes of the sandbox may stop the child before it executes its program, or lock that, as soon as they have
// its user. So the thread waits as any blocking call of Go does, and a timer continues or kills the child.
//
// The child closes the guest's descriptors before it becomes another user, and before it enters its working directory:
// a path through /proc that leads to one of them leads nowhere. What it opens next is the folder, at the first number
// that is free.
type spawner struct {
	memory *memory
	limits []Limit
	first  syscallArgs
	clone  cloneArgs
	pidfd  int32
}

// syscallArgs is a system call.
type syscallArgs struct {
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
	_          [2]uint64 // where to write the child's id
	exitSignal uint64
	_          [5]uint64 // the stack, which is the parent's; thread-local storage; ids to take
	cgroup     uint64
}

// vforkExec makes a child by the first call and has it make the calls, the last of which is execve. It gives the
// child's id, or the kernel's negative error number where there is none. It returns when the child has its own program,
// or has failed and ended.
//
//go:noescape
func vforkExec(first, calls *syscallArgs, failed *uintptr) (pid uintptr)

// errNoClone3 says that this kernel or its filter has no clone3 that does what is asked for. That came with Linux 5.5,
// into a cgroup with 5.7; engines that cannot look into clone3 deny that it exists.
const errNoClone3 = syscall.ENOSYS

// spawnFeatures is what this kernel and its filter let a birth use.
type spawnFeatures struct {
	// clone: there is no clone3. The child takes the signals' handlers back itself, and there is no birth into a
	// cgroup.
	clone bool
	// chdir: there is no openat2. The working directory may be a link of /proc, though not to anything of the guest.
	chdir bool
	// patience is how long a start may be held up. Zero is startPatience.
	patience time.Duration
}

// probeFeatures looks for what the calling thread may use, but for clone3. It fails where a child could not be kept
// from the guest's descriptors.
func probeFeatures() (w spawnFeatures, err error) {
	if err := unix.CloseRange(math.MaxUint32, math.MaxUint32, 0); err != nil {
		return w, fmt.Errorf("close descriptors (Linux 5.9 can, and an engine's filter must let it): %w", err)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return spawnFeatures{chdir: true}, nil //nolint:nilerr // that is the answer
	}
	unix.Close(fd)
	return w, nil
}

// start starts a process. The caller has its thread for itself.
func (b *spawner) start(c Command, cgroup int, w spawnFeatures) (pid, fd int, err error) {
	if w.clone && cgroup > 0 {
		return 0, -1, errNoClone3
	}
	if err := b.prepare(c, w); err != nil {
		return 0, -1, err
	}
	return b.run(cgroup, w)
}

// run makes a child that follows the plan.
func (b *spawner) run(cgroup int, w spawnFeatures) (pid, fd int, err error) {
	b.memory.hide()
	plan, shared := b.memory.plan, b.memory.shared
	b.pidfd, *shared = -1, childReport{}
	b.clone = cloneArgs{flags: cloneFlags | unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(unix.SIGCHLD), pidFD: uint64(address(&b.pidfd))}
	if cgroup > 0 {
		b.clone.flags |= unix.CLONE_INTO_CGROUP
		b.clone.cgroup = uint64(cgroup)
	}
	b.first = syscallArgs{unix.SYS_CLONE3, [5]uintptr{address(&b.clone), unsafe.Sizeof(b.clone)}}
	if w.clone {
		b.first = syscallArgs{unix.SYS_CLONE, [5]uintptr{cloneFlags | uintptr(unix.SIGCHLD), 0, address(&b.pidfd)}}
	}
	late := watch(&b.pidfd, cmp.Or(w.patience, startPatience))
	// A signal in the child would be handled on a stack that it has not.
	all := ^uint64(0)
	setMask(&all, &plan.mask)
	r := vforkExecBlocking(&b.first, &plan.calls[0], &shared.failed)
	setMask(&plan.mask, nil)
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
	case shared.failed != 0:
		err = syscall.Errno(shared.failed)
	case heldUp:
		err = ErrBlocked
	default:
		return pid, fd, nil
	}
	if fd >= 0 {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // It has ended, unless its user wrote that it failed.
		unix.Close(fd)
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	return 0, -1, err
}

// cloneFlags have this program wait until the child has memory of its own or has ended, and give a descriptor of the
// child.
const cloneFlags = unix.CLONE_VFORK | unix.CLONE_PIDFD

// try has a child do nothing, and finds out whether there is clone3, and whether a child can do without the rest of
// this program's memory. It cannot where a C library has registered memory to which the kernel writes (rseq): there it
// gets a copy of all.
func (b *spawner) try(w spawnFeatures) (spawnFeatures, error) {
	b.memory.reset()
	b.memory.plan.then(unix.SYS_EXIT_GROUP, 0)
	pid, fd, err := b.run(0, w)
	if errors.Is(err, errNoClone3) && !w.clone {
		w.clone = true
		pid, fd, err = b.run(0, w)
	}
	if err != nil {
		return w, fmt.Errorf("start a first process: %w", err)
	}
	unix.Close(fd)
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if status.Signaled() {
		b.memory.show()
	}
	return w, err
}

// vforkExecBlocking is born for a call that may block: other goroutines run meanwhile, as in syscall.Syscall.
//
//go:nosplit
func vforkExecBlocking(first, calls *syscallArgs, failed *uintptr) uintptr {
	enterSyscall()
	pid := vforkExec(first, calls, failed)
	exitSyscall()
	return pid
}

//go:linkname enterSyscall runtime.entersyscall
func enterSyscall()

//go:linkname exitSyscall runtime.exitsyscall
func exitSyscall()

// How long a child may take until it executes its program: after lateStart it is continued again and again, in case it
// was stopped; after startPatience it is killed.
const (
	lateStart     = 10 * time.Millisecond
	startPatience = 5 * time.Second
	// slowStart is for a child that is not held up by others: it waits for the machine.
	slowStart = time.Minute
)

// ErrBlocked is why a program was not executed: the child was stopped over and over, or its file was locked
// (F_SETLEASE). One that begins in the moment in which it is killed ends with this error too.
var ErrBlocked = errors.New("it did not begin within " + startPatience.String() + ": a process of the sandbox stops it, or has a lease of its file")

// spawnWatcher sees to it that a birth comes to an end.
type spawnWatcher struct {
	mu       sync.Mutex
	pidfd    *int32 // of the child, once it is not negative; nil once the birth is over
	timer    *time.Timer
	patience int // looks until a child that is held up is killed
	looks    int // not time, which passes for a machine that stands still
	killed   bool
}

// watch watches over the birth of a child, whose descriptor the kernel writes before the child runs, to memory that the
// child does not share. The caller stops it before it closes the descriptor.
func watch(pidfd *int32, patience time.Duration) *spawnWatcher {
	w := &spawnWatcher{pidfd: pidfd, patience: int(patience / lateStart)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(lateStart, w.look)
	return w
}

func (w *spawnWatcher) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pidfd == nil {
		return
	}
	if fd := int(atomic.LoadInt32(w.pidfd)); fd >= 0 {
		signal := syscall.SIGCONT
		w.looks++
		if w.killed || w.looks > w.patience && (isBlocked(fd) || w.looks > int(slowStart/lateStart)) {
			w.killed, signal = true, syscall.SIGKILL
		}
		_ = unix.PidfdSendSignal(fd, signal, nil, 0)
	}
	w.timer.Reset(lateStart)
}

// isBlocked reports whether a child is held up: it is stopped or traced, or in a sleep that signals interrupt, as for a
// lease. One that runs, or waits for a disk, is only slow.
func isBlocked(pidfd int) bool {
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	_, rest, found := strings.Cut(string(info), "\nPid:\t")
	number, _, _ := strings.Cut(rest, "\n")
	pid, wrong := strconv.Atoi(number)
	if err != nil || !found || wrong != nil {
		return false
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	s, ok := parseStat(string(text))
	return err == nil && ok && strings.IndexByte("TtS", s.state) >= 0
}

// stop ends the watching and reports whether the child was killed.
func (w *spawnWatcher) stop() (killed bool) {
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pidfd = nil
	return w.killed
}

// prepare lists what the child does.
func (b *spawner) prepare(c Command, w spawnFeatures) error {
	m := b.memory
	m.reset()
	path, err := m.text(c.Path)
	if err != nil {
		return err
	}
	dir, err := m.text(c.Dir)
	if err != nil {
		return err
	}
	argv, err := m.texts(c.Argv)
	if err != nil {
		return err
	}
	env, err := m.texts(c.Env)
	if err != nil {
		return err
	}
	p := m.plan
	if w.clone {
		p.forgetHandlers()
	}
	p.then(unix.SYS_SETSID)
	for i, fd := range c.Files {
		if int(fd) < len(c.Files) {
			return syscall.EBADF // dup3 would close another before it is given
		}
		p.then(unix.SYS_DUP3, fd, uintptr(i), 0)
	}
	p.then(unix.SYS_CLOSE_RANGE, firstFree, math.MaxUint32, 0)
	if u := c.User; u != nil {
		groups, err := m.groups(u.Groups)
		if err != nil {
			return err
		}
		p.then(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), groups)
		p.then(unix.SYS_SETGID, uintptr(u.GID))
		p.become(u)
	}
	if w.chdir {
		p.then(unix.SYS_CHDIR, dir)
	} else {
		at := unix.AT_FDCWD
		p.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
		p.then(unix.SYS_OPENAT2, uintptr(at), dir, address(&p.how), unsafe.Sizeof(p.how))
		p.then(unix.SYS_FCHDIR, firstFree)
	}
	for i, l := range b.limits {
		p.limits[i] = unix.Rlimit{Cur: l.Value, Max: l.Value}
		p.then(unix.SYS_PRLIMIT64, 0, uintptr(l.Resource), address(&p.limits[i]), 0)
	}
	p.then(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, address(&p.mask), 0, unsafe.Sizeof(p.mask))
	p.then(unix.SYS_EXECVE, path, argv, env)
	return nil
}

// bound has all children begin with these limits, or lower ones where this program has no right to as much.
func (b *spawner) bound(limits []Limit) {
	for _, l := range limits {
		var now unix.Rlimit
		if l.Value != 0 && unix.Getrlimit(l.Resource, &now) == nil {
			b.limits = append(b.limits, Limit{l.Resource, min(l.Value, now.Max)})
		}
	}
}

// forgetHandlers has the child forget the handlers of signals, which are this program's, before any signal can come.
func (p *plan) forgetHandlers() {
	for s := uintptr(1); s <= lastSignal; s++ {
		var now signalAction
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, s, 0, address(&now), unsafe.Sizeof(p.mask), 0, 0)
		if errno == 0 && now.handler != defaultAction && now.handler != ignoreAction {
			p.then(unix.SYS_RT_SIGACTION, s, address(&p.byDefault), 0, unsafe.Sizeof(p.mask))
		}
	}
}

// become makes the child the user. Capabilities that it shall have outlive the change and, being ambient, execve. The
// change of user can make the child traceable (fs.suid_dumpable). It must not be: a tracer could change what it does
// until it executes its program.
func (p *plan) become(u *Credential) {
	if len(u.Capabilities) == 0 {
		p.then(unix.SYS_SETUID, uintptr(u.UID))
		p.then(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
		return
	}
	p.capHeader = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	p.capData = [2]unix.CapUserData{}
	for _, c := range u.Capabilities {
		d := &p.capData[c/32]
		d.Permitted |= 1 << (c % 32)
		d.Effective, d.Inheritable = d.Permitted, d.Permitted
	}
	p.then(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1)
	p.then(unix.SYS_SETUID, uintptr(u.UID))
	p.then(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	p.then(unix.SYS_CAPSET, address(&p.capHeader), address(&p.capData[0]))
	for _, c := range u.Capabilities {
		p.then(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c)
	}
}

func (p *plan) then(number uintptr, args ...uintptr) {
	p.calls[p.count] = syscallArgs{number: number}
	copy(p.calls[p.count].args[:], args)
	p.count++
}

// address is for what stays where it is: on the heap, or in memory of births.
func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// setMask sets the signals that this thread blocks and gives those that it blocked.
func setMask(mask, old *uint64) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(mask)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(*mask), 0, 0)
}
