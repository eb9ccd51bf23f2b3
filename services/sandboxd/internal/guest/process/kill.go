package process

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evalfleet/evalfleet/pkg/retry"
)

// killPatience bounds how long KillTree hunts for survivors after the grace.
const killPatience = 10 * time.Second

// KillTree ends the process and all that it started, also what left its session or was left behind by its parent:
// SIGTERM, then after grace SIGKILL until none is found. It returns when none is left, not even to be reaped, and
// reports how many it could not end (0, save for processes stuck in the kernel). A process that has ended already is
// left alone, and so are the ones it left behind.
func (p *Process) KillTree(grace time.Duration) (survivors int) {
	t := p.table
	if !p.signalGroup(syscall.SIGTERM) {
		return 0
	}
	found, _ := p.tree()
	signal(found, syscall.SIGTERM)
	backoff := retry.Backoff{First: time.Millisecond, Max: 20 * time.Millisecond}
	for end := time.Now().Add(grace); time.Now().Before(end); {
		if none(p.tree) {
			<-p.done
			t.reapEnded()
			return 0
		}
		wait := backoff.Next()
		select {
		case <-p.done:
		case <-time.After(wait):
		}
		if p.ended() {
			time.Sleep(wait) // nothing tells us of the others' end
		}
	}
	p.signalGroup(syscall.SIGKILL)
	return t.kill(p.tree, p.done)
}

// signalGroup sends a signal to all processes of the process's group at once, so that none escapes by forking. It
// reports false if the process was reaped: another group may have its number.
func (p *Process) signalGroup(s syscall.Signal) bool {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	if p.ended() {
		return false
	}
	_ = syscall.Kill(-p.pid, s)
	return true
}

// KillLeft ends the processes that an ended process has left behind, even those that left its session.
func (p *Process) KillLeft() { p.table.kill(p.tree, nil) }

// KillAll ends every process of the sandbox except this program and returns when none is left, with the number of those
// that it could not end (0, except for processes stuck in the kernel). A process that is started in the meantime may be
// ended too.
func (t *Table) KillAll() (survivors int) {
	if os.Getpid() == 1 {
		_ = syscall.Kill(-1, syscall.SIGKILL) // all of the namespace at once, so that no fork escapes
	}
	return t.kill(t.descendants, nil)
}

// kill stops all that find gives until it finds nothing new, so that nothing forks on, and then kills it, until none is
// left, and reaps it: what has ended counts among the processes of the sandbox until it is reaped.
func (t *Table) kill(find finder, leader <-chan struct{}) int {
	for end := time.Now().Add(killPatience); ; {
		stopped := map[int]bool{}
		for fresh := true; fresh && time.Now().Before(end); {
			fresh = false
			found, _ := find()
			for _, pid := range found {
				if !stopped[pid] {
					stopped[pid], fresh = true, true
					_ = syscall.Kill(pid, syscall.SIGSTOP)
				}
			}
		}
		left, _ := find()
		signal(left, syscall.SIGKILL)
		if len(left) == 0 && (none(find) || t.killFrozen(find) == 0) {
			if leader != nil {
				<-leader
			}
			t.reapEnded()
			return 0
		}
		if time.Now().After(end) {
			return max(1, len(left)) // one at least comes and goes
		}
		time.Sleep(time.Millisecond)
	}
}

func signal(pids []int, s syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, s)
	}
}

// killFrozen kills all that find gives while nothing in the sandbox runs, so that no list misses one, and returns how
// many it found. Where this program is not the first of its namespace, others would be stopped too: it does nothing.
//
// The sandbox's other commands are stopped and continued, which they can notice. So it is the last resort. One call at
// a time does it: another would take what this one has stopped for what was stopped before, and leave it so.
func (t *Table) killFrozen(find finder) int {
	if os.Getpid() != 1 {
		return 0
	}
	t.freezing.Lock()
	defer t.freezing.Unlock()
	before, _ := snapshot()
	_ = syscall.Kill(-1, syscall.SIGSTOP) // all of the namespace at once, so that no fork escapes
	found, _ := find()
	signal(found, syscall.SIGKILL)
	frozen, _ := snapshot()
	for pid := range frozen {
		if pid != 1 && before[pid].state != 'T' {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	return len(found)
}

// A finder lists living processes. The list is complete unless processes came or went while it was made.
type finder func() (pids []int, complete bool)

// looks is how many lists are made to find a complete one, where others come and go all the time.
const looks = 50

// none reports that there are no processes for sure. One that forks and ends, again and again, is in few lists, but no
// list is complete while it does.
func none(find finder) bool {
	for range looks {
		switch pids, complete := find(); {
		case len(pids) > 0:
			return false
		case complete:
			return true
		}
	}
	return false
}

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// tree lists the living processes that belong to p: its session and group, its mark, and all their descendants. All are
// looked for below this program alone, to which orphans come; others may be seen, and bear the marks of another table,
// but are not ours.
func (p *Process) tree() (pids []int, complete bool) {
	t := p.table
	all, complete := snapshot()
	ours := below(all, os.Getpid())
	t.mu.Lock()
	now := t.live[p.pid] // another process, when p has ended and its id was given away
	alive, named := now == p, now == nil || now == p
	for pid, q := range t.live {
		if q != p {
			delete(ours, pid)
		}
	}
	t.mu.Unlock()
	own := map[int]bool{}
	for pid := range ours {
		s := all[pid]
		if alive && pid == p.pid || named && (s.session == p.pid || s.group == p.pid) {
			own[pid] = true
			continue
		}
		mark, read := readMark(pid)
		if p.mark != 0 && mark == p.mark {
			own[pid] = true
		}
		complete = complete && (read || !s.alive()) // it has ended meanwhile, and may have left a child
	}
	for pid := range ours {
		if !own[pid] && descends(all, ours, pid, own) {
			own[pid] = true
		}
	}
	return living(all, own), complete
}

// descendants lists every living process below this program.
func (t *Table) descendants() (pids []int, complete bool) {
	all, complete := snapshot()
	return living(all, below(all, os.Getpid())), complete
}

// below gives the descendants of a process.
func below(all map[int]stat, ancestor int) map[int]bool {
	found := map[int]bool{}
	for pid := range all {
		if pid != ancestor && descends(all, nil, pid, map[int]bool{ancestor: true}) {
			found[pid] = true
		}
	}
	return found
}

// descends tells that one of the ancestors of pid is in of, and that those between are in within (nil: anywhere).
func descends(all map[int]stat, within map[int]bool, pid int, of map[int]bool) bool {
	for range len(all) { // a snapshot is not of one moment, so it might hold a circle
		parent := all[pid].parent
		switch {
		case of[parent]:
			return true
		case parent == 0, within != nil && !within[parent]:
			return false
		}
		pid = parent
	}
	return false
}

// living lists the processes of a set that have not ended.
func living(all map[int]stat, set map[int]bool) []int {
	var pids []int
	for pid := range set {
		if s := all[pid]; s.alive() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stat is the kernel's description of a process.
type stat struct {
	parent, group, session int
	threads                int
	state                  byte
}

// alive reports whether a thread of the process runs. The first thread may have ended before the others, which makes
// the process look like one that has ended.
func (s stat) alive() bool { return s.threads > 1 || s.state != 'Z' && s.state != 'X' }

// snapshot reads all processes that are visible here, one after another. It is complete if /proc lists the same
// processes before and after: a process that forked and ended meanwhile has left a child that the first list does not
// have.
func snapshot() (all map[int]stat, complete bool) {
	all = map[int]stat{}
	names, err := processes()
	if err != nil {
		return all, false
	}
	complete = true
	for _, name := range slices.Backward(names) { // newest first: they may end soonest
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		data, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			complete = false
			continue
		}
		if s, ok := parseStat(string(data)); ok {
			all[pid] = s
		}
	}
	after, err := processes()
	return all, complete && err == nil && slices.Equal(names, after)
}

// processes lists /proc, where the processes are in the order of their numbers.
func processes() ([]string, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// parseStat reads "pid (name) state parent group session …"; the name may hold anything. The number of threads is the
// twentieth field.
func parseStat(line string) (stat, bool) {
	end := strings.LastIndex(line, ") ")
	if end < 0 {
		return stat{}, false
	}
	f := strings.Fields(line[end+2:])
	if len(f) < 18 {
		return stat{}, false
	}
	parent, e1 := strconv.Atoi(f[1])
	group, e2 := strconv.Atoi(f[2])
	session, e3 := strconv.Atoi(f[3])
	threads, e4 := strconv.Atoi(f[17])
	return stat{parent: parent, group: group, session: session, threads: threads, state: f[0][0]}, errors.Join(e1, e2, e3, e4) == nil
}
