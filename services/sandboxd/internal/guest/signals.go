package guest

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"
)

// lastSignal is the greatest number of a signal.
const lastSignal = 64

// takeSignals handles every signal, so that no command can end the guest by one. Outside a process namespace SIGTERM is
// the host's way to end it.
func (g *guest) takeSignals(obeyTerm bool) error {
	forgotten := make(chan os.Signal, 1)
	for s := syscall.Signal(1); s <= lastSignal; s++ {
		switch s {
		case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGKILL, syscall.SIGSTOP: // the runtime's own, or nobody's to handle
		case syscall.SIGTERM:
			c := make(chan os.Signal, 1)
			signal.Notify(c, s)
			go func() {
				for range c {
					if obeyTerm {
						g.exit("asked by a signal")
					}
				}
			}()
		default:
			signal.Notify(forgotten, s)
		}
	}
	return takeReserved()
}

// takeReserved handles the signals that Go leaves to C libraries. The kernel spares the first process of a namespace
// what it does not handle, but not a signal that comes while the first thread has it blocked, as it has all signals in
// the handler of another. They get a handler that does nothing: unlike an ignored signal, programs that are started do
// not inherit that.
func takeReserved() error {
	var action kernelAction
	if err := sigaction(syscall.SIGHUP, nil, &action); err != nil { // for what the runtime knows of stacks and returning
		return fmt.Errorf("read the handler of a signal: %w", err)
	}
	action.handler = doNothingPC
	for _, s := range []syscall.Signal{32, 33, 34} {
		if err := sigaction(s, &action, nil); err != nil {
			return fmt.Errorf("handle signal %d: %w", s, err)
		}
	}
	return nil
}

// doNothingPC is where doNothing is, a handler in the convention of the kernel.
var doNothingPC uintptr

func doNothing() //nolint:unused // signals.s takes its address

// kernelAction begins as the kernel's struct sigaction; the rest of that is kept as it is.
type kernelAction struct {
	handler uintptr
	rest    [56]byte
}

func sigaction(s syscall.Signal, set, old *kernelAction) error {
	const setBytes = 8
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), setBytes, 0, 0)
	runtime.KeepAlive(set)
	runtime.KeepAlive(old)
	if errno != 0 {
		return errno
	}
	return nil
}
