// Package command runs the commands of a sandbox and keeps their results.
//
// A command has a key that its caller chose. The claim of the key, the process, its output and its exit status stay in
// the sandbox until the caller releases them: a caller that was cut off returns with the key and continues, and a
// command never runs twice. Commands without a key belong to one call and end with it.
package command

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/spool"
)

// Command is one command of the sandbox, running or ended. Its methods are safe for concurrent use.
type Command struct {
	key      string
	hash     []byte
	grace    time.Duration
	oomCount func() int64

	stdout, stderr *spool.Spool
	input          *input
	began          time.Time
	after          func()        // runs before the end is visible; nil does nothing
	begun          chan struct{} // closed when it runs, or will not
	done           chan struct{}

	mu      sync.Mutex
	state   state
	process *process.Process // set once it runs
	cause   cause            // why it was killed
	killed  chan struct{}    // closed when the killing is over; nil when nobody kills
	// The following are set before done is closed.
	err      error // it could not be started for a reason that is the caller's to see
	exit     int32
	signal   int32
	oom      bool
	duration time.Duration
}

// state of a command: starting → running → ended.
type state int

const (
	starting state = iota
	running
	ended
)

// cause is why a command was killed.
type cause int

const (
	notKilled cause = iota
	timedOut
	cancelled
)

// Exit codes of commands that could not be started, as shells give them.
const (
	exitNotFound      = 127
	exitNotExecutable = 126
	exitSignalled     = 128 // and the signal's number
)

// Done is closed when the command has ended and its output is complete.
func (c *Command) Done() <-chan struct{} { return c.done }

// Err is why the command could not be started. It is valid once Done is closed. It is nil for any command that ran,
// however it ended, and for programs that do not exist, which end with 127.
func (c *Command) Err() error { return c.err }

// Started waits until the command runs or has failed to start, and returns its process id (0 if there never was a
// process) and its start time.
func (c *Command) Started() (pid int, at time.Time) {
	<-c.begun
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return 0, c.began
	}
	return c.process.PID(), c.began
}

// Stdout is the command's standard output.
func (c *Command) Stdout() *spool.Spool { return c.stdout }

// Stderr is the command's standard error.
func (c *Command) Stderr() *spool.Spool { return c.stderr }

// Result returns how the command ended, with at most limit bytes of each stream. Valid once Done is closed and Err is
// nil.
func (c *Command) Result(limit int64) *sandboxv1.ExecResult {
	r := &sandboxv1.ExecResult{
		ExitCode: new(c.exit), Signal: c.signal, TimedOut: c.cause == timedOut, Cancelled: c.cause == cancelled, Oom: c.oom,
		StdoutBytes: c.stdout.Total(), StderrBytes: c.stderr.Total(),
		StartTime: timestamppb.New(c.began), Duration: durationpb.New(c.duration),
	}
	var cut int64
	if r.Stdout, cut = c.stdout.Joined(limit); cut >= 0 {
		r.StdoutCutAt = &cut
	}
	var cutErr int64
	if r.Stderr, cutErr = c.stderr.Joined(limit); cutErr >= 0 {
		r.StderrCutAt = &cutErr
	}
	return r
}

// kill ends the command and all processes that it started; the first cause counts. It does not wait; Done does.
func (c *Command) kill(why cause) (running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == ended {
		c.hasten()
		return false
	}
	if c.killed != nil || c.cause != notKilled {
		return true
	}
	c.cause = why
	if c.state == starting {
		return true // start sees the cause
	}
	c.killTree()
	return true
}

// killTree kills the process tree. The caller holds mu, and the process runs.
func (c *Command) killTree() {
	over := make(chan struct{})
	c.killed = over
	c.hasten()
	go func() {
		defer close(over)
		c.process.KillTree(c.grace)
	}()
}

// hasten makes the rest of the output wait for no reader.
func (c *Command) hasten() {
	c.stdout.Hasten()
	c.stderr.Hasten()
}

// watch waits for the end of the process, then for the rest of its output, and completes the command.
func (c *Command) watch(timeout *time.Timer, pumps []*pump, ooms int64) {
	// Most commands end before any reader needs to follow them, and their output fits into their pipes.
	if !c.process.Wait(readAlong) {
		for _, p := range pumps {
			p.start()
		}
		c.process.Wait(0)
	}
	c.mu.Lock()
	c.state = ended
	over := c.killed
	c.mu.Unlock()
	if over != nil {
		<-over // nothing of it lives on
	}
	for _, p := range pumps {
		p.finish()
	}
	if timeout != nil {
		timeout.Stop() // it bounds the wait for readers too
	}
	c.input.close()
	status := c.process.Status()
	if status.Signaled() {
		c.signal = int32(status.Signal())
		c.exit = exitSignalled + c.signal
	} else {
		c.exit = int32(status.ExitStatus())
	}
	if c.exit != 0 {
		c.oom = c.oomCount() > ooms
	}
	c.complete()
}

// complete makes the end of the command visible.
func (c *Command) complete() {
	c.mu.Lock()
	c.state = ended
	c.mu.Unlock()
	c.duration = time.Since(c.began)
	if c.after != nil {
		c.after()
	}
	c.stdout.Close()
	c.stderr.Close()
	close(c.done)
}

// badProgram is why a command ends before it begins through the fault of its program: a result, as a shell would give
// it.
type badProgram struct {
	exit int32
	why  string
}

func (e *badProgram) Error() string { return e.why }

// fail completes a command that could not be started. It must not block: it runs on the thread that forks, and readers
// wait for begun.
func (c *Command) fail(err error) {
	c.hasten()
	if bad, ok := errors.AsType[*badProgram](err); ok {
		c.exit = bad.exit
		_, _ = c.stderr.Write([]byte(bad.why + "\n"))
	} else {
		c.err = err
	}
	close(c.begun)
	c.complete()
}
