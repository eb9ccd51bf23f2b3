package sandbox

import (
	"io/fs"
	"strconv"
	"syscall"

	"google.golang.org/grpc/codes"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// explain converts sandboxd's errors into those that a tool may return. An error that the model could neither fix nor
// work around stays as it is, and ends the run.
func explain(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := rpcerr.As(err); ok && path == "" {
		path = e.Metadata["path"]
	}
	switch rpcerr.Reason(err) {
	case errorsv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND:
		return &fs.PathError{Op: op, Path: path, Err: fs.ErrNotExist}
	case errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY:
		return &fs.PathError{Op: op, Path: path, Err: syscall.EISDIR}
	case errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION:
		return &fs.PathError{Op: op, Path: path, Err: fs.ErrPermission}
	case errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH:
		return tool.Errorf("%v", err)
	case errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT:
		return tool.OverOutputLimit(limitBytes(err), "")
	case errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST,
		errorsv1.ErrorReason_ERROR_REASON_SANDBOX_TERMINATED,
		errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND:
		return tool.Unavailable(err.Error())
	case errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED:
		return &tool.Error{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, Message: "the command was cancelled"}
	case errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA:
		if isFull(err) {
			return tool.Errorf("%v", err)
		}
		return err
	default:
		if isUnavailable(err) {
			return tool.Unavailable("the sandbox service does not answer: " + err.Error())
		}
		return err
	}
}

func limitBytes(err error) int64 {
	e, ok := rpcerr.As(err)
	if !ok {
		return 0
	}
	bytes, _ := strconv.ParseInt(e.Metadata["limitBytes"], 10, 64)
	return bytes
}

// isUnavailable reports whether sandboxd, rather than the sandbox, is unreachable at the moment.
func isUnavailable(err error) bool {
	return rpcerr.Transient(err) && rpcerr.Code(err) == codes.Unavailable
}

// isFull reports whether the sandbox cannot start one more process. Processes that its commands left behind may fill it
// permanently, so waiting for room may never end.
func isFull(err error) bool {
	e, ok := rpcerr.As(err)
	return ok && e.Reason == errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA && e.Metadata["quota"] == "processes"
}
