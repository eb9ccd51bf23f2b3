package box

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// errNoSpaceForFilter is ENOTSUPP, which has no name outside of the kernel: it has no memory left for one more compiled
// filter (net.core.bpf_jit_limit).
const errNoSpaceForFilter = syscall.Errno(524)

// shortages are the errors of a machine that temporarily lacks a resource. They are no evidence of what the machine can
// do.
var shortages = []syscall.Errno{
	unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN, unix.ENOSPC, unix.EDQUOT, unix.ENOBUFS, unix.EUSERS, unix.EINTR, unix.EIO, unix.ESTALE, unix.ETXTBSY,
	unix.ETIMEDOUT, errNoSpaceForFilter,
}

// TransientError is a transient failure without an error number that shows it.
type TransientError struct{ Err error }

func (e *TransientError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *TransientError) Unwrap() error { return e.Err }

// Transient reports whether an error is transient: a shortage of the machine, or a deadline. From such an error no
// caller may conclude that the machine lacks a part of the isolation.
func Transient(err error) bool {
	if _, ok := errors.AsType[*TransientError](err); ok {
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		slices.ContainsFunc(shortages, func(errno syscall.Errno) bool { return errors.Is(err, errno) })
}
