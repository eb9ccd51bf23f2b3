// Package process starts, waits for and kills the processes of a sandbox.
//
// Its one idea: a Table owns every child of the program. One locked thread does all forks: what is done to that thread
// once (capabilities dropped, no new privileges, system call filter, cgroup) holds for every child, while the program
// itself keeps its powers. A second such thread forks the children that are held in another way than the rest, and may
// be given capabilities. The end of a process is awaited through the network poller, which costs no thread; orphans of
// the workload, which come to this program, have a reaper of their own while there are any. A lock spans fork and
// registration, so that neither mistakes one for the other, and no end is lost.
package process

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
)

// Config sets how a Table starts processes.
type Config struct {
	// Prepare runs once on the thread that forks, before its first fork; what it does to the thread is inherited by
	// children. Nil does nothing.
	Prepare func() error
	// PrepareApart is Prepare for the thread that forks the children whose Command says Apart.
	PrepareApart func() error
	// CgroupFD is a folder of the cgroup v2 hierarchy into which children are born; 0 leaves them in the program's own.
	CgroupFD int
	// OOMScoreAdj is given to each child when it is above 0, so that the kernel kills the workload before the program.
	OOMScoreAdj int
	// ProcessLimits bounds each child and what it starts; entries of value 0 are left as they are.
	ProcessLimits []Limit
	Logger        *slog.Logger
}

// Limit is a resource limit of one process.
type Limit struct {
	// Resource is one of the RLIMIT constants.
	Resource int
	Value    uint64
}

// Table owns all children of this program: there must be one Table in a program, and nothing else in it may start
// processes. All methods are safe for concurrent use.
type Table struct {
	cfg             Config
	requests, apart chan request // for the threads that fork
	closed          chan struct{}
	once            sync.Once

	birth spawner       // guarded by forking
	way   spawnFeatures // guarded by forking

	freezing sync.Mutex // held while all processes of the sandbox are stopped

	marking sync.Mutex // spans marking this program and the fork that inherits the mark
	forking sync.Mutex // spans fork and registration, against the reaper of orphans
	mu      sync.Mutex
	live    map[int]*Process
	starts  int // counts forks, for the reaper
	reaping bool
	marks   *marks // guarded by marking
}

// Process is a started process: the leader of a session of its own.
type Process struct {
	table *Table
	pid   int
	mark  uint64
	fd    *os.File // a descriptor of the process, readable when it has ended
	done  chan struct{}
	// status is set before done is closed.
	status syscall.WaitStatus
}

// NewTable starts the table's threads. It fails when Prepare fails.
func NewTable(cfg Config) (*Table, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	marks, err := newMarks()
	if err != nil {
		return nil, fmt.Errorf("find marks for processes: %w", err)
	}
	memory, err := newMemory()
	if err != nil {
		return nil, err
	}
	t := &Table{
		birth: spawner{memory: memory}, cfg: cfg, requests: make(chan request), apart: make(chan request), closed: make(chan struct{}), live: map[int]*Process{}, marks: marks,
	}
	t.birth.bound(cfg.ProcessLimits)
	ready := make(chan error)
	go t.onThread(func() { t.spawn(cfg.Prepare, t.requests, ready) })
	if err := <-ready; err != nil {
		return nil, err
	}
	go t.onThread(func() { t.spawn(cfg.PrepareApart, t.apart, ready) })
	if err := <-ready; err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close ends the table's threads. Children must have ended before; it is meant for tests, a guest ends by exit.
func (t *Table) Close() { t.once.Do(func() { close(t.closed) }) }

// PID is the process id in the sandbox.
func (p *Process) PID() int { return p.pid }

// Done is closed when the process has ended and was reaped, by Wait or by the reaper.
func (p *Process) Done() <-chan struct{} { return p.done }

// Status returns how the process ended. It is valid once Done is closed.
func (p *Process) Status() syscall.WaitStatus { return p.status }

// ErrClosed is returned by Start after Close.
var ErrClosed = errors.New("process table is closed")
