// Package waittest bounds the waits of tests, so that a test whose event never happens fails with its name instead of
// blocking the whole run until the time limit of its package.
//
// Inside a bubble of testing/synctest it is not needed: there a wait that cannot end is a panic that shows it.
package waittest

import (
	"bytes"
	"context"
	"runtime/pprof"
	"testing"
	"time"
)

// Bound is how long a test waits for one event. It is far above the delays of a loaded machine.
const Bound = time.Minute

// For waits for a value of ch, or for its end, and returns the value. After [Bound] it fails the test at once, with the
// name of the missing event, and logs the stack of every goroutine. Only the test's own goroutine may call it, in
// cleanups too.
func For[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	late := time.NewTimer(Bound)
	defer late.Stop()
	select {
	case v := <-ch:
		return v
	case <-late.C:
		var waits bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&waits, 1) // A buffer takes all.
		t.Log(waits.String())
		t.Fatalf("missing after %v: %s", Bound, what)
	}
	panic("unreachable: Fatalf ends the goroutine")
}

// Return waits until f returns, as For does. f is a blocking wait: that of a sync.WaitGroup, of a server or of a
// process.
func Return(t testing.TB, f func(), what string) {
	t.Helper()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		f()
	}()
	For(t, returned, what)
}

// Hold waits for a value of ch, for its end, or for the end of the test, whichever comes first. It is for the
// goroutines of servers and tools that a test scripts: if a test fails early, none of them remains blocked.
func Hold[T any](t testing.TB, ch <-chan T) {
	select {
	case <-ch:
	case <-t.Context().Done():
	}
}

// Context returns the context of a stream, which ends with the test and at the latest after [Bound].
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Bound)
	t.Cleanup(cancel)
	return ctx
}
