// Package rpcerr is the platform's errors: a gRPC code, a documented reason, and details that programs can read.
//
// Domain code makes one with the constructor of its kind and wraps it with %w as it likes; a server's interceptor turns it into a status (ToStatus), a client's
// interceptor turns the status back (FromStatus), so that Code, Is and the rest answer alike on both sides of the wire. Nothing matches on message text.
package rpcerr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
)

// Domain is the domain of every google.rpc.ErrorInfo that the platform sends.
const Domain = "evalfleet.dev"

// Error is a failure with its kind. Its fields are read-only once it has been returned.
type Error struct {
	// Code is the gRPC code.
	Code codes.Code
	// Reason says why, for programs.
	Reason errorsv1.ErrorReason
	// Message is for people: lower case, names the thing and the next step, never a secret, a prompt or an upstream body.
	Message string
	// Metadata holds the facts that the reason documents; keys are lowerCamelCase.
	Metadata map[string]string
	// RetryAfter is when to try again; zero says nothing.
	RetryAfter time.Duration
	// Fields are the request's fields that break a rule, with an INVALID_REQUEST.
	Fields []Field

	cause error
}

// Field is a field of a request that breaks a rule.
type Field struct {
	// Path is the field's path, such as `spec.limits.tokens`.
	Path string
	// Description says which rule, and what would do.
	Description string
}

// New makes an error of any kind. The format may wrap a cause with %w, which stays on this side of the wire.
func New(code codes.Code, reason errorsv1.ErrorReason, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Reason: reason, Message: err.Error(), cause: errors.Unwrap(err)}
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, if there is one.
func (e *Error) Unwrap() error { return e.cause }

// With adds a fact to the metadata and returns e.
func (e *Error) With(key, value string) *Error {
	if e.Metadata == nil {
		e.Metadata = map[string]string{}
	}
	e.Metadata[key] = value
	return e
}

// RetryIn says when to try again and returns e.
func (e *Error) RetryIn(d time.Duration) *Error {
	e.RetryAfter = d
	return e
}

// WithField adds a field that breaks a rule and returns e.
func (e *Error) WithField(path, format string, args ...any) *Error {
	e.Fields = append(e.Fields, Field{Path: path, Description: fmt.Sprintf(format, args...)})
	return e
}

// clone copies e, so that a caller may change the copy.
func (e *Error) clone() *Error {
	c := *e
	c.Metadata = maps.Clone(e.Metadata)
	return &c
}

// InvalidRequest says that a request breaks a rule of its schema.
func InvalidRequest(format string, args ...any) *Error {
	return New(codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, format, args...)
}

// InvalidField is InvalidRequest for one field.
func InvalidField(path, format string, args ...any) *Error {
	description := fmt.Sprintf(format, args...)
	return InvalidRequest("%s: %s", path, description).WithField(path, "%s", description)
}

// InvalidArgument says that an argument cannot be used, for another reason than INVALID_REQUEST.
func InvalidArgument(reason errorsv1.ErrorReason, format string, args ...any) *Error {
	return New(codes.InvalidArgument, reason, format, args...)
}

// NotFound says that something does not exist.
func NotFound(reason errorsv1.ErrorReason, format string, args ...any) *Error {
	return New(codes.NotFound, reason, format, args...)
}

// ResourceNotFound says that a named resource does not exist.
func ResourceNotFound(name string) *Error {
	return NotFound(errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND, "no %s", name).With("resource", name)
}

// UnknownName says that nothing of that name is known, and names what is. Thing is what it would be, such as `tool`; it is also the key of the metadata.
func UnknownName(reason errorsv1.ErrorReason, thing, name string, known []string) *Error {
	all := strings.Join(known, ", ")
	return NotFound(reason, "unknown %s %q; known: %s", thing, name, all).With(thing, name).With("known", all)
}

// AlreadyExists says that something exists with other content.
func AlreadyExists(reason errorsv1.ErrorReason, format string, args ...any) *Error {
	return New(codes.AlreadyExists, reason, format, args...)
}

// Aborted says that another change came first.
func Aborted(reason errorsv1.ErrorReason, format string, args ...any) *Error {
	return New(codes.Aborted, reason, format, args...)
}

// FailedPrecondition says that the state of things does not allow it.
func FailedPrecondition(reason errorsv1.ErrorReason, format string, args ...any) *Error {
	return New(codes.FailedPrecondition, reason, format, args...)
}

// ResourceExhausted says that something is full or spent; give it a RetryIn.
func ResourceExhausted(reason errorsv1.ErrorReason, format string, args ...any) *Error {
	return New(codes.ResourceExhausted, reason, format, args...)
}

// Unavailable says that something is away for now.
func Unavailable(reason errorsv1.ErrorReason, format string, args ...any) *Error {
	return New(codes.Unavailable, reason, format, args...)
}

// PermissionDenied says that the caller may not do that.
func PermissionDenied(reason errorsv1.ErrorReason, format string, args ...any) *Error {
	return New(codes.PermissionDenied, reason, format, args...)
}

// Unauthenticated says that the caller's credential is missing or not known.
func Unauthenticated(format string, args ...any) *Error {
	return New(codes.Unauthenticated, errorsv1.ErrorReason_ERROR_REASON_TOKEN_INVALID, format, args...)
}

// Cancelled says that an effect was cancelled by its key.
func Cancelled(format string, args ...any) *Error {
	return New(codes.Canceled, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED, format, args...)
}

// DeadlineExceeded says that an effect ran out of its own time.
func DeadlineExceeded(format string, args ...any) *Error {
	return New(codes.DeadlineExceeded, errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED, format, args...)
}

// NotBuiltYet says that an RPC or field belongs to a capability that this version does not have.
func NotBuiltYet(capability string) *Error {
	return New(codes.Unimplemented, errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET, "%s is not built yet", capability).With("capability", capability)
}

// Internal says that we are at fault. Only the message crosses the wire, so it should say no more than what was being done.
func Internal(format string, args ...any) *Error {
	return New(codes.Internal, errorsv1.ErrorReason_ERROR_REASON_INTERNAL, format, args...)
}

// As returns the *Error in err's chain, if there is one.
func As(err error) (*Error, bool) { return errors.AsType[*Error](err) }

// Code returns the gRPC code of err: OK for nil, CANCELLED and DEADLINE_EXCEEDED for the context's errors, UNKNOWN for errors of no kind.
func Code(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	if e, ok := As(err); ok {
		return e.Code
	}
	switch {
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	return codes.Unknown
}

// Reason returns err's reason; UNSPECIFIED where it has none.
func Reason(err error) errorsv1.ErrorReason {
	if e, ok := As(err); ok {
		return e.Reason
	}
	return errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED
}

// Is reports whether err has that reason.
func Is(err error, reason errorsv1.ErrorReason) bool { return err != nil && Reason(err) == reason }

// RetryAfter returns when to try again; zero where err does not say.
func RetryAfter(err error) time.Duration {
	if e, ok := As(err); ok {
		return e.RetryAfter
	}
	return 0
}

// ReasonName returns a reason as it stands in ErrorInfo: without the prefix of the enum.
func ReasonName(r errorsv1.ErrorReason) string { return strings.TrimPrefix(r.String(), reasonPrefix) }

const reasonPrefix = "ERROR_REASON_"
