// Package process runs children whose processor time is measured apart from that of other processes.
//
// A child writes its address in the first line of its standard output, as `evalfleet serve --json` does: {"address":
// "127.0.0.1:7460"}. It ends by SIGTERM, also when the program that started it dies.
package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How long a child may take to be ready, and to end.
const (
	startTime = 30 * time.Second
	stopTime  = 20 * time.Second
)

// line is the first line of a child's standard output.
type line struct {
	Address string `json:"address"`
}

// Ready writes a child's address for its parent.
func Ready(stdout io.Writer, address string) error {
	return json.NewEncoder(stdout).Encode(line{Address: address})
}

// Child is a running child. Only CPU is safe for concurrent use.
type Child struct {
	// Address is where it serves.
	Address string

	cmd    *exec.Cmd
	stderr *bytes.Buffer
	ended  chan struct{} // closed when it has ended
	err    error         // how it ended, once ended is closed
}

// Start runs a program and waits until it is ready. Variables that configure the platform are taken from its
// environment. The caller must Stop it.
func Start(ctx context.Context, program string, args ...string) (*Child, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	c := &Child{cmd: cmd, stderr: &bytes.Buffer{}, ended: make(chan struct{})}
	cmd.Stderr = c.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "EVALFLEET_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	said := make(chan string, 1)
	go func() {
		lines := bufio.NewReader(stdout)
		if first, err := lines.ReadString('\n'); err == nil {
			said <- first
			_, _ = io.Copy(io.Discard, lines)
		}
		c.err = cmd.Wait()
		close(c.ended)
	}()
	if err := c.await(ctx, said); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(program), err, c.stderr)
	}
	return c, nil
}

var errNotReady = errors.New("ended before it was ready")

// await waits until the child has said where it serves. A child that does not is dead afterwards.
func (c *Child) await(ctx context.Context, said <-chan string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	select {
	case first := <-said:
		var l line
		err := json.Unmarshal([]byte(first), &l)
		if err == nil && l.Address == "" {
			err = errors.New("no address")
		}
		if err != nil {
			c.kill()
			return fmt.Errorf("said %q, not where it serves: %w", strings.TrimSpace(first), err)
		}
		c.Address = l.Address
		return nil
	case <-c.ended:
		return errors.Join(errNotReady, c.err)
	case <-ctx.Done():
		c.kill()
		return ctx.Err()
	}
}

// CPU is the processor time that the child has used so far, in user and in kernel mode, in all its threads.
func (c *Child) CPU() (time.Duration, error) { return CPU(c.cmd.Process.Pid) }

// Stop asks the child to end, waits for it, and returns how it ended. A child that does not end in time is killed.
func (c *Child) Stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-c.ended:
		exit, failed := errors.AsType[*exec.ExitError](c.err)
		if failed && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM {
			return nil // It has no better way to end.
		}
		if c.err != nil {
			return fmt.Errorf("%s: %w: %s", filepath.Base(c.cmd.Path), c.err, c.stderr)
		}
		return nil
	case <-time.After(stopTime):
		c.kill()
		return fmt.Errorf("%s did not end and was killed", filepath.Base(c.cmd.Path))
	}
}

func (c *Child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// CPU returns the processor time that a process has used so far, to the nanosecond, by its CPU-time clock
// (clock_getcpuclockid(3)).
func CPU(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED of linux/posix-timers.h: the whole process, as the scheduler counts it.
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
