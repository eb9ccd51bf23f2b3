// Package fault names the errors that a sandbox gives: each function makes one documented reason, so that the guest and the host
// never disagree about a code or a metadata key.
package fault

import (
	"errors"
	"io/fs"
	"strconv"
	"syscall"

	"google.golang.org/grpc/codes"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
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
	code, reason := codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH
	switch errno {
	case syscall.ENOENT:
		code, reason = codes.NotFound, errorsv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND
	case syscall.EISDIR:
		reason = errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY
	case syscall.EACCES, syscall.EPERM, syscall.EROFS:
		code, reason = codes.PermissionDenied, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG:
		reason = errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT
	case syscall.ENOTDIR, syscall.ENAMETOOLONG, syscall.EINVAL, syscall.ELOOP, syscall.ENOTEMPTY, syscall.ENXIO:
		code = codes.InvalidArgument
	default:
		return rpcerr.Internal("%s %s: %w", op, path, err).With("path", path)
	}
	return rpcerr.New(code, reason, "%s %s: %s%w", op, path, errno.Error(), hidden{err}).With("path", path)
}

// hidden keeps a cause in the chain without saying it twice.
type hidden struct{ err error }

func (h hidden) Error() string { return "" }
func (h hidden) Unwrap() error { return h.err }

// InvalidPath says that a path cannot be what is asked for.
func InvalidPath(path, why string) error {
	return rpcerr.InvalidArgument(errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH, "%s: %s", path, why).With("path", path)
}

// TooLarge says that a file is over a limit.
func TooLarge(path string, limit int64) error {
	return rpcerr.FailedPrecondition(errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT, "%s is larger than %s", path, size(limit)).
		With("path", path).With("limitBytes", strconv.FormatInt(limit, 10))
}

// NotExecutable says that the user may not execute a program.
func NotExecutable(program string) error {
	return rpcerr.PermissionDenied(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION, "%s is not executable here", program).With("path", program)
}

// UnknownUser says that the sandbox has no such user.
func UnknownUser(name string) error {
	return rpcerr.InvalidField("user", "the sandbox has no user %q", name)
}

// NoUserSwitch says that the sandbox cannot run commands for other users.
func NoUserSwitch(name string) error {
	return rpcerr.FailedPrecondition(errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED,
		"cannot act as %q: this sandbox has a single user; run the platform as root for more", name).With("capability", "users")
}

// KeyUnknown says that no command has that key.
func KeyUnknown(key string) error {
	return rpcerr.NotFound(errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN, "no command with the request id %q", key).With("requestId", key)
}

// KeyReused says that a key came with another command.
func KeyReused(key string) error {
	return rpcerr.AlreadyExists(errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED, "the request id %q was used for another command", key).With("requestId", key)
}

// KeyCancelled says that a key was cancelled before its command began.
func KeyCancelled(key string) error {
	return rpcerr.Cancelled("the command with the request id %q was cancelled before it began", key).With("requestId", key)
}

// TooManyResults says that results must be released before more are kept.
func TooManyResults(limit int) error {
	return rpcerr.ResourceExhausted(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA,
		"the sandbox keeps %d results already; release those that are recorded", limit).With("limit", strconv.Itoa(limit))
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

// NoRoom says that the sandbox has no room for one more process.
func NoRoom(err error) error {
	return rpcerr.ResourceExhausted(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA,
		"the sandbox has no room for another process; end some, or give it more memory and pids: %w", err)
}
