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

// Command is the process to start.
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
	// Apart starts the process from the thread that Config.PrepareApart prepared.
	Apart bool
}

// Credential is a user inside the sandbox.
type Credential struct {
	UID, GID uint32
	Groups   []uint32
	// Capabilities are what the process has, and what it starts inherits. The program itself has them, and the thread
	// may give them.
	Capabilities []uintptr
}

type request struct {
	command Command
	mark    uint64 // that this program bears
	then    func(*Process, error)
}

// Start starts a process in a session of its own, and then calls then on the thread that forks, which must not block.
// The error is the system's own (syscall.Errno) if the program cannot be executed. The caller must Wait for the
// process.
func (t *Table) Start(c Command, then func(*Process, error)) {
	t.marking.Lock() // until the fork
	mark := t.marks.next()
	r := request{c, mark, then}
	err := t.marks.set(mark)
	thread := t.requests
	if c.Apart {
		thread = t.apart
	}
	if err == nil {
		select {
		case thread <- r:
			return
		case <-t.closed:
			err = ErrClosed
		}
	}
	t.marking.Unlock()
	then(nil, err)
}

// onThread calls f on a thread that is not given back: it ends with the goroutine. It is never the program's first,
// which decides in which cgroup of version 1 the program's memory counts, and dies when that is full: the threads that
// fork enter that of the children.
func (t *Table) onThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	go t.onThread(f)
	<-t.closed // until then no other goroutine gets the first thread
	runtime.UnlockOSThread()
}

// spawn is the body of a thread that forks.
func (t *Table) spawn(prepare func() error, requests <-chan request, ready chan<- error) {
	if prepare != nil {
		if err := prepare(); err != nil {
			ready <- fmt.Errorf("prepare a thread that starts processes: %w", err)
			return
		}
	}
	t.forking.Lock()
	var err error
	if t.way, err = probeFeatures(); err == nil {
		t.way, err = t.birth.try(t.way)
	}
	t.forking.Unlock()
	ready <- err
	if err != nil {
		return
	}
	for {
		select {
		case <-t.closed:
			return
		case r := <-requests:
			t.serve(r)
		}
	}
}

// serve starts the process that is asked for, on a thread that forks.
func (t *Table) serve(r request) {
	p, err := t.register(r.command, r.mark)
	t.marking.Unlock()
	r.then(p, err)
	switch {
	case err != nil || t.cfg.OOMScoreAdj <= 0:
	case r.command.Apart:
		go raiseOOMScore(p.pid, t.cfg.OOMScoreAdj) // this thread may not write to /proc
	default:
		raiseOOMScore(p.pid, t.cfg.OOMScoreAdj)
	}
}

// register forks a process and registers it, before the reaper can see it as an unknown one.
func (t *Table) register(c Command, mark uint64) (*Process, error) {
	t.forking.Lock()
	defer t.forking.Unlock()
	pid, fd, err := t.fork(c)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &Process{table: t, pid: pid, mark: mark, fd: os.NewFile(uintptr(fd), "process"), done: make(chan struct{})}
	t.live[pid] = p
	t.starts++
	return p, nil
}

func (t *Table) fork(c Command) (pid, fd int, err error) {
	pid, fd, err = t.birth.start(c, t.cfg.CgroupFD, t.way)
	if errors.Is(err, errNoClone3) && !t.way.clone {
		t.way.clone = true
		pid, fd, err = t.birth.start(c, t.cfg.CgroupFD, t.way)
	}
	if err != nil {
		return 0, -1, err
	}
	if fd < 0 {
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
