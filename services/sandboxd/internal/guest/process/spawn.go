package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Command says what to start.
type Command struct {
	// Path of the program, as LookPath gives it.
	Path string
	Argv []string
	Env  []string
	// Dir is the absolute working directory.
	Dir string
	// User to become; nil keeps the program's own.
	User *Credential
	// Files are the descriptors of standard input, output and error.
	Files [3]uintptr
}

// Credential is a user inside the sandbox.
type Credential struct {
	UID, GID uint32
	Groups   []uint32
}

type request struct {
	command Command
	then    func(*Process, error)
}

// Start starts a process in a session of its own, and then calls then on the thread that forks, which must not block. The error is
// the system's own (syscall.Errno) when the program cannot be executed. Somebody must Wait for the process.
func (t *Table) Start(c Command, then func(*Process, error)) {
	select {
	case <-t.closed:
		then(nil, ErrClosed)
	case t.requests <- request{c, then}:
	}
}

// spawn is the body of the thread that forks. The thread is not given back: it ends with the goroutine.
func (t *Table) spawn(ready chan<- error) {
	runtime.LockOSThread()
	if t.cfg.Prepare != nil {
		if err := t.cfg.Prepare(); err != nil {
			ready <- fmt.Errorf("prepare the thread that starts processes: %w", err)
			return
		}
	}
	ready <- nil
	for {
		select {
		case <-t.closed:
			return
		case r := <-t.requests:
			p, err := t.register(r.command)
			r.then(p, err)
			if err == nil && t.cfg.OOMScoreAdj > 0 {
				raiseOOMScore(p.pid, t.cfg.OOMScoreAdj)
			}
		}
	}
}

// register forks a process and makes it known, before the reaper can see it as one that nobody knows.
func (t *Table) register(c Command) (*Process, error) {
	t.mu.Lock()
	mark := t.marks.take()
	t.mu.Unlock()
	t.forking.Lock()
	defer t.forking.Unlock()
	pid, fd, err := t.fork(c, mark)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.marks.free(mark)
		return nil, err
	}
	p := &Process{table: t, pid: pid, mark: mark, fd: os.NewFile(uintptr(fd), "process"), done: make(chan struct{})}
	t.live[pid] = p
	t.starts++
	return p, nil
}

func (t *Table) fork(c Command, mark uint64) (pid, fd int, err error) {
	t.marks.set(mark)
	err = errNoBirth
	if !t.plain {
		pid, fd, err = t.birth.bear(c, t.cfg.CgroupFD)
	}
	if errors.Is(err, errNoBirth) {
		t.plain = true
		pid, fd, err = forkExec(c, t.cfg.CgroupFD)
	}
	if err != nil {
		return 0, -1, err
	}
	err = t.bound(pid)
	if err == nil && fd < 0 {
		err = errors.New("this kernel gives no descriptors of processes; it needs Linux 5.4")
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK) // for the poller
	}
	if err != nil {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return 0, -1, err
	}
	return pid, fd, nil
}

// forkExec starts a process where there are no births.
func forkExec(c Command, cgroup int) (pid, fd int, err error) {
	fd = -1
	sys := &syscall.SysProcAttr{Setsid: true, PidFD: &fd}
	if c.User != nil {
		sys.Credential = &syscall.Credential{Uid: c.User.UID, Gid: c.User.GID, Groups: c.User.Groups}
	}
	if cgroup > 0 {
		sys.UseCgroupFD, sys.CgroupFD = true, cgroup
	}
	pid, err = syscall.ForkExec(c.Path, c.Argv, &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: c.Files[:], Sys: sys})
	return pid, fd, err
}

// bound sets the limits of a new process. One that has ended already needs none.
func (t *Table) bound(pid int) error {
	for _, l := range t.cfg.ProcessLimits {
		if l.Value == 0 {
			continue
		}
		limit := unix.Rlimit{Cur: l.Value, Max: l.Value}
		if err := unix.Prlimit(pid, l.Resource, &limit, nil); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("bound a process by limit %d: %w", l.Resource, err)
		}
	}
	return nil
}

// raiseOOMScore is best effort: a process that is gone already needs no score.
func raiseOOMScore(pid, score int) {
	path, err := syscall.BytePtrFromString("/proc/" + strconv.Itoa(pid) + "/oom_score_adj")
	if err != nil {
		return
	}
	at := unix.AT_FDCWD
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(path)), syscall.O_WRONLY|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return
	}
	text := strconv.AppendInt(nil, int64(score), 10)
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)))
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
}
