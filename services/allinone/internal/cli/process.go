package cli

import (
	"context"
	"errors"
	"io"
	"os"
)

// Process is the process that a command runs in, as far as commands look at it.
type Process struct {
	// Name is how the program was called, for commands that people are told to run next.
	Name string
	// Stdin, Stdout and Stderr are its streams. Results go to Stdout; progress, notes and errors to Stderr.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Env tells the environment.
	Env func(name string) (value string, ok bool)
	// Signals brings interrupts, each once. It has room for a few.
	Signals <-chan os.Signal
	// StdoutWidth and StderrWidth tell the columns of the terminal behind a stream; 0 where it is none.
	StdoutWidth, StderrWidth func() int
}

// untilInterrupt returns a context that ends with the next interrupt, too. Stop frees it; interrupts that come later are for whoever asks next.
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

// interrupted reports whether an interrupt ended ctx.
func interrupted(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errInterrupted) }
