package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// BadRequest is the HTTP status of a request that is at fault.
const BadRequest = 400

// Failure is a failure as a client is told of it. Each format has words of its own for it.
type Failure struct {
	// Status is the HTTP status.
	Status int
	// Cause says more than the status, where clients act on more.
	Cause Cause
	// Param is the member of the request at fault; empty where it is none.
	Param   string
	Message string
	// RequestID names the request; empty says nothing.
	RequestID string
}

// Cause is why a request is refused.
type Cause int

// Causes.
const (
	// ByStatus is no more than the status says.
	ByStatus Cause = iota
	// Wrong is a value that the format does not allow.
	Wrong
	// Missing is a member that the format requires.
	Missing
	// Unsupported is what the format allows and cannot be done here.
	Unsupported
	// NoThreads is a conversation of which the vendor is to keep the beginning: clients send all of it when they are
	// told so.
	NoThreads
	// UnknownModel is a model that is not there.
	UnknownModel
	// TooLong is a conversation that the model has no room for: clients make it shorter when they are told so.
	TooLong
	// QuotaSpent is a budget that waiting does not fill again.
	QuotaSpent
)

// RequestError says what is wrong with a client's request.
type RequestError struct {
	// Cause is Wrong, Missing, Unsupported or NoThreads.
	Cause Cause
	// Param is the member at fault, in the notation of the format, such as `messages[2].content` or
	// `messages.2.content`; empty for the request as a whole.
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

// Failure is what a client is told.
func (e *RequestError) Failure() Failure {
	f := Failure{Status: BadRequest, Cause: e.Cause, Param: e.Param, Message: e.Error()}
	if f.Param == "" && f.Cause == Wrong {
		f.Cause = ByStatus // There is no value to blame.
	}
	return f
}

// Invalid is a value that the format does not allow.
func Invalid(param, format string, arguments ...any) error {
	return &RequestError{Cause: Wrong, Param: param, Message: fmt.Sprintf(format, arguments...)}
}

// Required is a member that is not there.
func Required(param string) error {
	return &RequestError{Cause: Missing, Param: param, Message: "is required"}
}

// NotSupported is what cannot be done here.
func NotSupported(param, format string, arguments ...any) error {
	return &RequestError{Cause: Unsupported, Param: param, Message: fmt.Sprintf(format, arguments...)}
}

// Mismatch is a value of another type than its member has.
func Mismatch(err *json.UnmarshalTypeError) error {
	return Invalid(err.Field, "must not be %s", aKind(err.Value))
}

// aKind is a kind of value as encoding/json names it, with its article.
func aKind(kind string) string {
	switch {
	case kind == "bool":
		return "a boolean"
	case strings.HasPrefix(kind, "object"), strings.HasPrefix(kind, "array"):
		return "an " + kind
	default:
		return "a " + kind
	}
}

// At says where in a request a fault is: place, with a separator at its end, goes before its member.
func At(place string, err error) error {
	if failure, ok := errors.AsType[*RequestError](err); ok {
		return &RequestError{Cause: failure.Cause, Param: strings.TrimSuffix(place+failure.Param, "."), Message: failure.Message}
	}
	return err
}

// numbers are counts of tokens in what vendors say.
var numbers = regexp.MustCompile(`\d[\d,]{2,}`)

// Room reads from what a vendor says of a conversation that is too long how many tokens it has and how many fit; ok is
// false where it does not say just these two.
func Room(said string) (tokens, most int64, ok bool) {
	var found []int64
	for _, text := range numbers.FindAllString(said, -1) {
		n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
		if err == nil && !slices.Contains(found, n) {
			found = append(found, n)
		}
	}
	if len(found) != 2 {
		return 0, 0, false
	}
	return max(found[0], found[1]), min(found[0], found[1]), true
}
