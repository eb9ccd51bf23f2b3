package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// Process is the process that a command runs in, as far as commands look at it.
type Process struct {
	// Name is how the program was called, for the commands that are printed to be run next.
	Name string
	// Stdin, Stdout and Stderr are its streams. Results go to Stdout; progress, notes and errors to Stderr.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Env looks up a variable of the environment.
	Env func(name string) (value string, ok bool)
	// Signals brings interrupts, each once: those of [HandOver].
	Signals <-chan os.Signal
	// StdoutWidth and StderrWidth return the columns of the terminal behind a stream; 0 where it is none.
	StdoutWidth, StderrWidth func() int
	// StderrHeight returns the rows of the terminal behind Stderr; 0 where it is none.
	StderrHeight func() int
}

// draws reports whether a terminal of that many columns takes what moves the cursor; 0 columns are none.
func (p Process) draws(columns int) bool {
	kind, _ := p.Env("TERM")
	return columns > 0 && kind != "dumb"
}

// colors reports whether a terminal of that many columns gets colors: not if NO_COLOR is set (https://no-color.org).
func (p Process) colors(columns int) bool {
	none, _ := p.Env("NO_COLOR")
	return p.draws(columns) && none == ""
}

// untilInterrupt returns a context that ends with the next interrupt, too. Stop frees it; later interrupts are for the
// next caller.
func (p Process) untilInterrupt(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-p.Signals:
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-done
	}
}

// patience is how long a command may take to look at an interrupt.
const patience = 2 * time.Second

// HandOver returns a channel that brings each signal to the part of a command that waits for one. A signal that no part
// takes within two seconds (the command reads something that does not come, say) is given to end, which ends the
// process.
func HandOver(signals <-chan os.Signal, end func(os.Signal)) <-chan os.Signal {
	taken := make(chan os.Signal)
	go func() {
		for s := range signals {
			select {
			case taken <- s:
			case <-time.After(patience):
				end(s)
			}
		}
	}()
	return taken
}

// input returns standard input. Reads end with ctx, although the read of the process's own input may not. Reading
// begins with this call: call it once per process, and only if the command reads standard input.
func (p Process) input(ctx context.Context) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, p.Stdin)
		w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { r.CloseWithError(context.Cause(ctx)) })
	return r
}

// interrupted reports whether an interrupt ended ctx.
func interrupted(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errInterrupted) }
