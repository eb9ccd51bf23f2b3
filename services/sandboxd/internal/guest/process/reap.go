package process

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// reap waits for every child, registered or adopted. It first looks who has ended without reaping (WNOWAIT), then reaps under
// the lock: until then the process id cannot be given to a new process.
func (t *Table) reap() {
	seen := 0
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		switch err {
		case nil:
			t.reapOne()
			runtime.Gosched() // whoever waited for that end goes first: this goroutine is about to block its thread
		case unix.EINTR:
		case unix.ECHILD:
			if !t.awaitBirth(&seen) {
				return
			}
		default:
			t.cfg.Logger.Error("cannot wait for children", "error", err)
			return
		}
	}
}

// reapOne reaps one child that has ended and tells its Process. Children that nobody registered are orphans of the workload.
func (t *Table) reapOne() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	if err != nil || pid <= 0 {
		return
	}
	p, ok := t.live[pid]
	if !ok {
		return
	}
	delete(t.live, pid)
	t.marks.free(p.mark)
	p.status = status
	close(p.done)
}

// awaitBirth waits until there may be a child again; false when the table is closed. A child that has ended leaves its own
// children to this program before it can be reaped, so that only a start can end a time without children.
func (t *Table) awaitBirth(seen *int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.starts == *seen {
		select {
		case <-t.closed:
			return false
		default:
			t.born.Wait()
		}
	}
	*seen = t.starts
	return true
}
