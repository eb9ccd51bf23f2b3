// Package fault constructs the errors of a sandbox: each function returns one documented reason, so that the guest and
// the host use the same code and metadata keys.
package fault

import (
	"errors"
	"io/fs"
	"strconv"
	"syscall"
	"time"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// File is the error of an operation on a file or folder of the sandbox.
func File(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := rpcerr.As(err); ok {
		return err
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			errno = syscall.ENOENT
		case errors.Is(err, fs.ErrPermission):
			errno = syscall.EACCES
		}
	}
	say := rpcerr.InvalidPath
	switch errno {
	case syscall.ENOENT:
		say = rpcerr.FileNotFound
	case syscall.EISDIR:
		say = rpcerr.IsADirectory
	case syscall.EACCES, syscall.EPERM, syscall.EROFS:
		say = rpcerr.SandboxPermission
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG:
		say = rpcerr.DiskFull
	case syscall.ENOTDIR, syscall.ENAMETOOLONG, syscall.EINVAL, syscall.ELOOP, syscall.ENOTEMPTY, syscall.ENXIO:
	case syscall.EAGAIN, syscall.EBUSY, syscall.ETXTBSY, syscall.EXDEV, syscall.EMLINK, syscall.EIO, syscall.ENODEV, syscall.EOPNOTSUPP, syscall.ESRCH:
	default:
		return rpcerr.Internal("%s %s: %w", op, path, err)
	}
	why := errno.Error()
	switch errno { //nolint:exhaustive // All others speak for themselves.
	case syscall.ELOOP:
		why = "too many symbolic links, or one of /proc that leads to what a process has open"
	case syscall.EAGAIN:
		why = "a process of the sandbox has a lease of it"
	}
	return say(path, "%s %s: %s%w", op, path, why, hidden{err})
}

// hidden keeps a cause in the chain without repeating its text.
type hidden struct{ err error }

func (h hidden) Error() string { return "" }
func (h hidden) Unwrap() error { return h.err }

// InvalidPath is the error of a path of the wrong kind.
func InvalidPath(path, why string) error {
	return rpcerr.InvalidPath(path, "%s: %s", path, why)
}

// TooLarge is the error of a file over a limit.
func TooLarge(path string, limit int64) error {
	return rpcerr.FileTooLarge(path, limit, "%s is larger than %s", path, size(limit))
}

// NotExecutable is the error of a program that the user may not execute.
func NotExecutable(program string) error {
	return rpcerr.SandboxPermission(program, "%s is not executable here", program)
}

// UnknownUser is the error of a user that the sandbox does not have.
func UnknownUser(name string) error {
	return rpcerr.InvalidField("spec.user", "the sandbox has no user %q; leave it out for the sandbox's own, or add the user in its image or set-up", name)
}

// NoUserSwitch is the error of a sandbox that cannot run commands for other users.
func NoUserSwitch(name string) error {
	return rpcerr.In("spec.user", rpcerr.CapabilityUnsupported("users", "cannot act as %q: this sandbox has a single user; run the platform as root for more", name))
}

// KeyUnknown is the error of a key that no command has.
func KeyUnknown(key string) error {
	return rpcerr.EffectUnknown(key, "no command with the request id %q", key)
}

// KeyReused is the error of a key that was used for another command.
func KeyReused(key string) error {
	return rpcerr.RequestIDReused(key, "the request id %q was used for another command; use a new one", key)
}

// KeyCancelled is the error of a key that was cancelled before its command began.
func KeyCancelled(key string) error {
	return rpcerr.EffectCancelled(key, "the command with the request id %q was cancelled before it began", key)
}

// TooManyResults is the error of a sandbox in which results must be released before more can be stored.
func TooManyResults(limit int) error {
	return rpcerr.SandboxQuota("results", limit, time.Second, "the sandbox keeps %d results already; release those that are recorded", limit)
}

// size writes bytes as people do, where they divide exactly.
func size(n int64) string {
	for _, u := range []struct {
		bytes int64
		name  string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// NoRoom is the error of a sandbox without room for one more process.
func NoRoom(err error) error {
	return rpcerr.SandboxQuota("processes", 0, time.Second,
		"the sandbox has no room for another process; end some, or give it more memory and pids: %w", err)
}
