package local

import (
	"os"
	"regexp"
	"syscall"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
)

// exitFatal is the exit code of a Go program that the runtime ends, for a panic or because it cannot go on.
const exitFatal = 2

// runtimeShortage matches what the Go runtime writes when it gets no thread or no memory (src/runtime, calls of throw).
var runtimeShortage = regexp.MustCompile(`(?m)^(fatal error: |runtime: )+(newosproc|failed to create new OS thread|out of memory|cannot allocate memory)`)

// transientExit reports whether the guest program ended because of a transient shortage, and not because of a fault of
// its own, which would recur: it ended with the exit code for it, it was killed, as by a kernel without memory, or its
// runtime got no thread or no memory.
func transientExit(state *os.ProcessState, words []byte) bool {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal() == syscall.SIGKILL
	}
	switch state.ExitCode() {
	case guest.ExitTransient:
		return true
	case exitFatal:
		return runtimeShortage.Match(words)
	}
	return false
}
