package dialect

import (
	"errors"
	"fmt"
)

// Fault is what kind of fault a client's request has.
type Fault int

// Faults.
const (
	// Wrong is a value that the format does not allow.
	Wrong Fault = iota
	// Missing is a member that the format requires.
	Missing
	// Unsupported is what the format allows and cannot be done here.
	Unsupported
)

// RequestError says what is wrong with a client's request.
type RequestError struct {
	Fault Fault
	// Param is the member at fault, in the notation of the format, such as `messages[2].content` or `messages.2.content`; empty for the request as a whole.
	Param string
	// Message says what is wrong with it.
	Message string
}

// Error implements error.
func (e *RequestError) Error() string {
	if e.Param == "" {
		return e.Message
	}
	return e.Param + ": " + e.Message
}

// Invalid is a value that the format does not allow.
func Invalid(param, format string, arguments ...any) error {
	return &RequestError{Fault: Wrong, Param: param, Message: fmt.Sprintf(format, arguments...)}
}

// Required is a member that is not there.
func Required(param string) error {
	return &RequestError{Fault: Missing, Param: param, Message: "is required"}
}

// NotSupported is what cannot be done here.
func NotSupported(param, format string, arguments ...any) error {
	return &RequestError{Fault: Unsupported, Param: param, Message: fmt.Sprintf(format, arguments...)}
}

// At says where in a request a fault is: place, with a separator at its end, goes before its member.
func At(place string, err error) error {
	if failure, ok := errors.AsType[*RequestError](err); ok {
		return &RequestError{Fault: failure.Fault, Param: place + failure.Param, Message: failure.Message}
	}
	return err
}
