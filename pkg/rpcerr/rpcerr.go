// Package rpcerr is the platform's errors: a gRPC code, a documented reason, and details that programs can read.
//
// Domain code constructs an error with the constructor of its reason and may wrap it with %w. A server's interceptor
// turns it into a status (ToStatus), and a client's interceptor turns the status back (FromStatus), so that Code, Is
// and the other functions return the same on both sides of the wire. Nothing matches on message text.
package rpcerr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
)

// Domain is the domain of every google.rpc.ErrorInfo that the platform sends.
const Domain = "evalfleet.dev"

// Error is a failure with its kind. Its fields are read-only once it has been returned.
type Error struct {
	// Code is the gRPC code.
	Code codes.Code
	// Reason is the cause, for programs.
	Reason errorsv1.ErrorReason
	// Message is for people: lower case, names the thing and the next step, never a secret, a prompt or an upstream
	// body.
	Message string
	// Metadata holds the facts that the reason documents; keys are lowerCamelCase.
	Metadata map[string]string
	// RetryAfter is the delay before a retry; zero means unspecified.
	RetryAfter time.Duration
	// Fields are the request's fields that cause the failure: they break a rule, or the server cannot do what they ask
	// for.
	Fields []Field
	// Details are further facts, which the reason documents: few and small, since they travel in a trailer.
	Details []proto.Message

	cause error
}

// Field is a field of a request that causes a failure.
type Field struct {
	// Path is the field's path, such as `spec.limits.tokens`.
	Path string
	// Description states the rule, and a valid value.
	Description string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, if there is one.
func (e *Error) Unwrap() error { return e.cause }

// WithField adds a field that breaks a rule and returns e.
func (e *Error) WithField(path, format string, args ...any) *Error {
	e.Fields = append(e.Fields, Field{Path: path, Description: fmt.Sprintf(format, args...)})
	return e
}

// Saying adds words to the message, and to the description of the field if there is one, and returns e.
func (e *Error) Saying(words string) *Error {
	e.Message += "; " + words
	if len(e.Fields) == 1 {
		e.Fields[0].Description += "; " + words
	}
	return e
}

// WithDetail adds a further fact and returns e.
func (e *Error) WithDetail(detail proto.Message) *Error {
	e.Details = append(e.Details, detail)
	return e
}

// WithCause sets the error that e wraps and returns e. The cause stays on this side of the wire.
func (e *Error) WithCause(cause error) *Error {
	e.cause = cause
	return e
}

// clone copies e, so that a caller may change the copy.
func (e *Error) clone() *Error {
	c := *e
	c.Metadata = maps.Clone(e.Metadata)
	return &c
}

// As returns the *Error in err's chain, if there is one.
func As(err error) (*Error, bool) { return errors.AsType[*Error](err) }

// Code returns the gRPC code of err: OK for nil, CANCELLED and DEADLINE_EXCEEDED for the context's errors, UNKNOWN for
// errors of no kind.
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

// Reason returns err's reason; UNSPECIFIED if it has none.
func Reason(err error) errorsv1.ErrorReason {
	if e, ok := As(err); ok {
		return e.Reason
	}
	return errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED
}

// Is reports whether err has that reason.
func Is(err error, reason errorsv1.ErrorReason) bool { return err != nil && Reason(err) == reason }

// StoreAway reports whether err means that a store cannot read or write now, such as because its disk is full. The
// requested operation may have happened: a caller that needs it waits and retries.
func StoreAway(err error) bool { return Is(err, errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE) }

// RetryAfter returns the delay before a retry; zero if err does not specify it.
func RetryAfter(err error) time.Duration {
	if e, ok := As(err); ok {
		return e.RetryAfter
	}
	return 0
}

// ReasonName returns a reason as in ErrorInfo: without the prefix of the enum.
func ReasonName(r errorsv1.ErrorReason) string { return strings.TrimPrefix(r.String(), reasonPrefix) }

const reasonPrefix = "ERROR_REASON_"
