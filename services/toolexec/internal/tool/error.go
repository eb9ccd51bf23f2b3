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

// Error is a failure that is shown to the model. The run continues.
type Error struct {
	// Type is the kind of the failure.
	Type toolv1.ToolErrorType
	// Message is the text for the model.
	Message string
	// Output is what there was before it failed; it becomes the content beside the error.
	Output string
	// OmittedBytes is the number of bytes that were left out of the middle of Output.
	OmittedBytes int64
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Proto returns the error in its form within a result.
func (e *Error) Proto() *toolv1.ToolCallError {
	return &toolv1.ToolCallError{Type: e.Type, Message: e.Message}
}

// ErrNullByte is the error of a text for an operating system that contains a NUL. It is shown to the model.
var ErrNullByte = errors.New("embedded null byte")

// ErrIndeterminate is the error of a call that may have taken effect and must not be repeated. It ends the run.
var ErrIndeterminate = errors.New("it is not known whether the call took effect")

// Errorf returns an error of no particular kind: the tool could not do what it was asked to do.
func Errorf(format string, args ...any) *Error {
	return &Error{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, Message: fmt.Sprintf(format, args...)}
}

// Parsingf returns an error about invalid arguments.
func Parsingf(format string, args ...any) *Error {
	return &Error{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING, Message: fmt.Sprintf(format, args...)}
}

// Timeout returns the error of a command that exceeded its time, with its output so far.
func Timeout(output string) *Error {
	late := toolcall.TimedOut()
	return &Error{Type: late.GetType(), Message: late.GetMessage(), Output: output}
}

// Unavailable returns the error of a sandbox that no longer exists.
func Unavailable(detail string) *Error {
	return &Error{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE, Message: detail}
}

// OverOutputLimit returns the error of output over a bound in bytes, with the retained part of it.
func OverOutputLimit(bytes int64, output string) *Error {
	return &Error{
		Type:    toolv1.ToolErrorType_TOOL_ERROR_TYPE_LIMIT,
		Message: fmt.Sprintf("the output limit of %s was reached", binarySize(bytes)),
		Output:  output,
	}
}

// Explain returns the model's view of an error that a tool returned. It returns false if the error is not for the model
// and ends the run.
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

// aboutFile names the file of a failed operation beside the operating system's text; otherwise it repeats the error's
// text: unchanged if the file does not exist, with a full stop otherwise, as the reference does.
func aboutFile(err error, text string) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok && path.Path != "" {
		return fmt.Sprintf("%s: %s.", text, path.Path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	return err.Error() + "."
}

// binarySize formats a number of bytes in the largest unit that divides it.
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
