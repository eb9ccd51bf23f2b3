package process

import "time"

// DoWithoutClone3 makes the table start processes as it does where there is no clone3. It comes before the first Start.
func (t *Table) DoWithoutClone3() { t.way.clone = true }

// DoWithoutOpenat2 makes the table start processes as it does where there is no openat2. It comes before the first Start.
func (t *Table) DoWithoutOpenat2() { t.way.chdir = true }

// Way tells how processes were started: whether by clone3, and by openat2. It is asked on the thread that starts them.
func (t *Table) Way() (clone3, openat2 bool) { return !t.way.clone, !t.way.chdir }

// SetPatience sets how long a start may be held up. No start is under way meanwhile.
func (t *Table) SetPatience(d time.Duration) {
	t.forking.Lock()
	defer t.forking.Unlock()
	t.way.patience = d
}

// CopiesAll tells that processes begin with a copy of all memory of this program.
func (t *Table) CopiesAll() bool { return t.birth.memory.others == nil }
