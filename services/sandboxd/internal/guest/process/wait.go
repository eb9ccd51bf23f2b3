package process

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Wait waits for the end of the process, at most for limit (0: without bound), and reports whether it has ended. One
// goroutine calls it, until it is true.
func (p *Process) Wait(limit time.Duration) bool {
	deadline := time.Time{}
	if limit > 0 {
		deadline = time.Now().Add(limit)
	}
	_ = p.fd.SetReadDeadline(deadline)
	raw, err := p.fd.SyscallConn()
	if err == nil {
		err = raw.Read(func(uintptr) bool { return p.reap() })
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// A command that takes a while may leave processes behind that end while it goes on.
		p.table.reapOrphans()
		return false
	}
	<-p.done
	p.fd.Close()
	p.table.lookForOrphans()
	return true
}

// reap reaps the process if it has ended; true when it is reaped.
func (p *Process) reap() bool {
	t := p.table
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-p.done:
		return true
	default:
	}
	var status syscall.WaitStatus
	if pid, err := syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil); err != nil || pid != p.pid {
		return false
	}
	t.ended(p, status)
	return true
}

// ended makes the end of a process known. The caller holds mu and has reaped it.
func (t *Table) ended(p *Process, status syscall.WaitStatus) {
	delete(t.live, p.pid)
	p.status = status
	close(p.done)
}

// lookForOrphans starts the reaper when processes are left though no command runs.
func (t *Table) lookForOrphans() {
	t.mu.Lock()
	quiet := len(t.live) == 0
	t.mu.Unlock()
	if quiet && unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil {
		t.reapOrphans()
	}
}

// reapOrphans starts the reaper, unless it works.
func (t *Table) reapOrphans() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.reaping {
		t.reaping = true
		go t.reapAll()
	}
}

// reapAll reaps processes as they end, until there are none. It first looks who has ended without reaping (WNOWAIT):
// until a process is reaped its id cannot be given to another, so that one that is known is never mistaken.
func (t *Table) reapAll() {
	for {
		t.mu.Lock()
		starts := t.starts
		t.mu.Unlock()
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == nil:
			t.reapNext()
		case errors.Is(err, unix.EINTR):
		default: // ECHILD: none is left
			t.mu.Lock()
			if t.starts == starts {
				t.reaping = false
				t.mu.Unlock()
				return
			}
			t.mu.Unlock()
		}
	}
}

// reapEnded reaps all processes that have ended by now. Those whose parents have ended too are children of this
// program. It takes the lock once for all of them, since a start that waits for the lock in between may hold it for
// seconds. It stops after killPatience: other commands may leave ended processes behind faster than they are reaped.
func (t *Table) reapEnded() {
	t.forking.Lock()
	defer t.forking.Unlock()
	for end := time.Now().Add(killPatience); t.reapOne() && time.Now().Before(end); {
	}
}

// reapNext reaps one process that has ended.
func (t *Table) reapNext() {
	t.forking.Lock() // No process is started and not yet registered.
	defer t.forking.Unlock()
	t.reapOne()
}

// reapOne reaps one process that has ended, if there is one: one that is known for whoever waits for it, an orphan for
// good. The caller holds forking.
func (t *Table) reapOne() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	if err != nil || pid <= 0 {
		return false
	}
	if p, known := t.live[pid]; known {
		t.ended(p, status)
	}
	return true
}
