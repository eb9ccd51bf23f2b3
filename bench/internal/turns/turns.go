// Package turns runs programs that make calls in turns and measure themselves, such as clients in another language.
//
// A program writes a line when it is ready. Each line of its standard input is how long a turn lasts, in seconds; it
// answers with a line of JSON: {"calls": 12, "seconds": 0.5, "cpu": 0.2}, the last its own processor time in seconds.
// It ends when its input does.
package turns

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/paired"
)

// stopTime is how long a program may take to end after its input did.
const stopTime = time.Minute

// Program is a running program. It is not safe for concurrent use.
type Program struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *bufio.Reader
	stderr *bytes.Buffer
}

// Start starts a command and waits until it is ready. The caller must Stop it.
func Start(cmd *exec.Cmd) (*Program, error) {
	p := &Program{cmd: cmd, stderr: &bytes.Buffer{}}
	cmd.Stderr = p.stderr
	cmd.WaitDelay = time.Second
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.input, p.output = input, bufio.NewReader(output)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := p.output.ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("it ended before it was ready: %w", err), p.Stop())
	}
	return p, nil
}

// Stop ends the input, and waits for the end of the program.
func (p *Program) Stop() error {
	late := time.AfterFunc(stopTime, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	err := p.input.Close()
	_, readErr := io.Copy(io.Discard, p.output)
	if waitErr := p.cmd.Wait(); waitErr != nil {
		return fmt.Errorf("%w: %s", waitErr, p.stderr)
	}
	return errors.Join(err, readErr)
}

// turn is what was done in a turn.
type turn struct {
	Calls   int     `json:"calls"`
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`
}

func (p *Program) turn(ctx context.Context, d time.Duration) (t turn, err error) {
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	defer stop()
	if _, err = fmt.Fprintf(p.input, "%g\n", d.Seconds()); err != nil {
		return t, err
	}
	line, err := p.output.ReadBytes('\n')
	if err != nil {
		return t, fmt.Errorf("it did not answer: %w", err)
	}
	if err = json.Unmarshal(line, &t); err == nil && t.Calls == 0 {
		err = errors.New("it made no call")
	}
	return t, err
}

// Rate is a sampler of calls per second.
func (p *Program) Rate() paired.Sampler {
	return func(ctx context.Context, d time.Duration) (float64, error) {
		t, err := p.turn(ctx, d)
		return float64(t.Calls) / t.Seconds, err
	}
}

// CPU is a sampler of the program's own processor time per call, in microseconds.
func (p *Program) CPU() paired.Sampler {
	return func(ctx context.Context, d time.Duration) (float64, error) {
		t, err := p.turn(ctx, d)
		return t.CPU * 1e6 / float64(t.Calls), err
	}
}
