package process

import "time"

// DoWithoutClone3 makes the table start processes as on a kernel without clone3. It comes before the first Start.
func (t *Table) DoWithoutClone3() { t.way.clone = true }

// DoWithoutOpenat2 makes the table start processes as on a kernel without openat2. It comes before the first Start.
func (t *Table) DoWithoutOpenat2() { t.way.chdir = true }

// Way returns how processes were started: whether by clone3, and by openat2. It is called on the thread that starts
// them.
func (t *Table) Way() (clone3, openat2 bool) { return !t.way.clone, !t.way.chdir }

// SetPatience sets how long a start may be blocked. No start is in progress during the call.
func (t *Table) SetPatience(d time.Duration) {
	t.forking.Lock()
	defer t.forking.Unlock()
	t.way.patience = d
}

// WhileStarting calls f under the lock that the start of a process takes.
func (t *Table) WhileStarting(f func()) {
	t.forking.Lock()
	defer t.forking.Unlock()
	f()
}

// Reaping reports whether the reaper of orphans works.
func (t *Table) Reaping() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reaping
}

// CopiesAll reports whether processes begin with a copy of all memory of this program.
func (t *Table) CopiesAll() bool { return t.birth.memory.others == nil }

// Ended returns a process that has ended, and whose id has been reused since.
func (t *Table) Ended(pid int) *Process {
	p := &Process{table: t, pid: pid, mark: t.marks.hard - 1, done: make(chan struct{})}
	close(p.done)
	return p
}

// Watch watches over a process as over one that is being started, until it was looked at so often beyond the patience;
// then it reports whether the process was killed.
func Watch(pidfd int, patience time.Duration, beyond int) (killed bool) {
	child := int32(pidfd)
	w := watch(&child, patience)
	for {
		w.mu.Lock()
		done := w.killed || w.looks > w.patience+beyond
		w.mu.Unlock()
		if done {
			return w.stop()
		}
		time.Sleep(time.Millisecond)
	}
}
