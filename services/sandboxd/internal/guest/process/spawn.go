package process

import (
	"errors"
	"fmt"
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
	mark    uint64
	reply   chan reply
}

type reply struct {
	pid int
	err error
}

// Start starts a process in a session of its own. The error is the system's own (syscall.Errno) when the program cannot be executed.
func (t *Table) Start(c Command) (*Process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mark := t.marks.take()
	req := &request{command: c, mark: mark, reply: make(chan reply, 1)}
	select {
	case <-t.closed:
		t.marks.free(mark)
		return nil, ErrClosed
	case t.requests <- req:
	}
	r := <-req.reply
	if r.err != nil {
		t.marks.free(mark)
		return nil, r.err
	}
	p := &Process{table: t, pid: r.pid, mark: mark, done: make(chan struct{})}
	t.live[r.pid] = p
	t.starts++
	t.born.Signal()
	return p, nil
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
		case req := <-t.requests:
			pid, err := t.fork(req)
			req.reply <- reply{pid, err}
			if err == nil && t.cfg.OOMScoreAdj > 0 {
				raiseOOMScore(pid, t.cfg.OOMScoreAdj)
			}
		}
	}
}

func (t *Table) fork(req *request) (int, error) {
	setMark(req.mark)
	c := req.command
	sys := &syscall.SysProcAttr{Setsid: true}
	if c.User != nil {
		sys.Credential = &syscall.Credential{Uid: c.User.UID, Gid: c.User.GID, Groups: c.User.Groups}
	}
	if t.cfg.CgroupFD > 0 {
		sys.UseCgroupFD, sys.CgroupFD = true, t.cfg.CgroupFD
	}
	pid, err := syscall.ForkExec(c.Path, c.Argv, &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: c.Files[:], Sys: sys})
	if err != nil {
		return 0, err
	}
	for _, l := range t.cfg.ProcessLimits {
		if l.Value == 0 {
			continue
		}
		limit := unix.Rlimit{Cur: l.Value, Max: l.Value}
		if err := unix.Prlimit(pid, l.Resource, &limit, nil); err != nil && !errors.Is(err, unix.ESRCH) {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
			return 0, fmt.Errorf("bound a process by limit %d: %w", l.Resource, err)
		}
	}
	return pid, nil
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
