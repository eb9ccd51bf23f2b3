package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/toolcall"
)

// Error is a failure that the model is told of. The run goes on.
type Error struct {
	// Type is its kind.
	Type toolv1.ToolErrorType
	// Message is what the model reads.
	Message string
	// Output is what there was before it failed; it becomes the content beside the error.
	Output string
	// OmittedBytes is how much was left out of the middle of Output before.
	OmittedBytes int64
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Proto returns the error as it stands in a result.
func (e *Error) Proto() *toolv1.ToolCallError {
	return &toolv1.ToolCallError{Type: e.Type, Message: e.Message}
}

// ErrNullByte says that a text that goes to an operating system holds a NUL. The model is told so.
var ErrNullByte = errors.New("embedded null byte")

// ErrIndeterminate says that a call may have happened and must not happen twice. It ends the run.
var ErrIndeterminate = errors.New("it is not known whether the call took effect")

// Errorf makes an error of no particular kind: the tool could not do what it was asked.
func Errorf(format string, args ...any) *Error {
	return &Error{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, Message: fmt.Sprintf(format, args...)}
}

// Parsingf makes an error about arguments that make no sense.
func Parsingf(format string, args ...any) *Error {
	return &Error{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING, Message: fmt.Sprintf(format, args...)}
}

// Timeout makes the error of a command that did not finish in its time, with what it had printed.
func Timeout(output string) *Error {
	late := toolcall.TimedOut()
	return &Error{Type: late.GetType(), Message: late.GetMessage(), Output: output}
}

// Unavailable makes the error of a sandbox that is gone.
func Unavailable(detail string) *Error {
	return &Error{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE, Message: detail}
}

// OverOutputLimit makes the error of output over a bound in bytes, with what was kept of it.
func OverOutputLimit(bytes int64, output string) *Error {
	return &Error{
		Type:    toolv1.ToolErrorType_TOOL_ERROR_TYPE_LIMIT,
		Message: fmt.Sprintf("the output limit of %s was reached", binarySize(bytes)),
		Output:  output,
	}
}

// Explain returns what the model is told of an error that a tool returned, and false when the error is not for the
// model and ends the run.
func Explain(tool string, err error) (*Error, bool) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e, true
	}
	switch {
	case errors.Is(err, ErrNullByte):
		return Parsingf("an argument of %s holds a null byte", tool), true
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout(""), true
	}
	for _, known := range []struct {
		err  error
		kind toolv1.ToolErrorType
		text string
	}{
		{fs.ErrNotExist, toolv1.ToolErrorType_TOOL_ERROR_TYPE_FILE_NOT_FOUND, "No such file"},
		{fs.ErrPermission, toolv1.ToolErrorType_TOOL_ERROR_TYPE_PERMISSION, "Permission denied"},
		{syscall.EISDIR, toolv1.ToolErrorType_TOOL_ERROR_TYPE_IS_A_DIRECTORY, "Is a directory"},
	} {
		if errors.Is(err, known.err) {
			return &Error{Type: known.kind, Message: aboutFile(err, known.text)}, true
		}
	}
	return nil, false
}

// aboutFile names the file of a failed operation beside the operating system's text, or else repeats what the error
// says: as it is for a file that is not there, with a full stop otherwise, as the reference does.
func aboutFile(err error, text string) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok && path.Path != "" {
		return fmt.Sprintf("%s: %s.", text, path.Path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	return err.Error() + "."
}

// binarySize writes a number of bytes in the largest unit that divides it.
func binarySize(bytes int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if bytes >= unit.size && bytes%unit.size == 0 {
			return fmt.Sprintf("%d %s", bytes/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}
