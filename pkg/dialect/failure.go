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

// Failure is a failure as a client receives it. Each format words it differently.
type Failure struct {
	// Status is the HTTP status.
	Status int
	// Cause refines the status where clients distinguish more cases.
	Cause Cause
	// Param is the member of the request at fault; empty if there is none.
	Param   string
	Message string
	// RequestID identifies the request; empty if there is none.
	RequestID string
}

// Cause is why a request is refused.
type Cause int

// Causes.
const (
	// ByStatus adds nothing to the status.
	ByStatus Cause = iota
	// Wrong is a value that the format does not allow.
	Wrong
	// Missing is a member that the format requires.
	Missing
	// Unsupported is a request that the format allows but that is not supported here.
	Unsupported
	// NoThreads is a conversation whose beginning the vendor is expected to store: on this failure clients send all of
	// it.
	NoThreads
	// UnknownModel is a model that is not there.
	UnknownModel
	// TooLong is a conversation that the model has no room for: on this failure clients shorten it.
	TooLong
	// QuotaSpent is a budget that waiting does not fill again.
	QuotaSpent
)

// RequestError is the fault of a client's request.
type RequestError struct {
	// Cause is Wrong, Missing, Unsupported or NoThreads.
	Cause Cause
	// Param is the member at fault, in the notation of the format, such as `messages[2].content` or
	// `messages.2.content`; empty for the request as a whole.
	Param string
	// Message describes the fault.
	Message string
}

// Error implements error.
func (e *RequestError) Error() string {
	if e.Param == "" {
		return e.Message
	}
	return e.Param + ": " + e.Message
}

// Failure is the failure for the client.
func (e *RequestError) Failure() Failure {
	f := Failure{Status: BadRequest, Cause: e.Cause, Param: e.Param, Message: e.Error()}
	if f.Param == "" && f.Cause == Wrong {
		f.Cause = ByStatus // No value is at fault.
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

// NotSupported is the error for a request that is not supported here.
func NotSupported(param, format string, arguments ...any) error {
	return &RequestError{Cause: Unsupported, Param: param, Message: fmt.Sprintf(format, arguments...)}
}

// mostOfKind bounds how much of a value an error repeats: encoding/json names numbers whole, however long they are.
const mostOfKind = 100

// Mismatch is a value of another type than its member has.
func Mismatch(err *json.UnmarshalTypeError) error {
	kind := err.Value
	if len(kind) > mostOfKind {
		kind = kind[:mostOfKind] + "…"
	}
	return Invalid(err.Field, "must not be %s", aKind(kind))
}

// Unreadable is the error for a body that cannot be read; it names the member of the wrong type.
func Unreadable(err error) error {
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && mismatch.Field != "" {
		return Mismatch(mismatch)
	}
	return Invalid("", "the body is no JSON object: %s", strings.TrimPrefix(err.Error(), "json: "))
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

// At adds the place of a fault within a request: place, with a separator at its end, precedes the member.
func At(place string, err error) error {
	if failure, ok := errors.AsType[*RequestError](err); ok {
		return &RequestError{Cause: failure.Cause, Param: strings.TrimSuffix(place+failure.Param, "."), Message: failure.Message}
	}
	return err
}

// Each reads the items of a list, until one fails. place is the format of an item's place within a request, with its
// number and a separator at its end, such as `content.%d.`.
func Each[T any](items []T, place string, read func(item *T) error) error {
	for i := range items {
		if err := read(&items[i]); err != nil {
			return At(fmt.Sprintf(place, i), err)
		}
	}
	return nil
}

// numbers matches counts of tokens in vendors' messages.
var numbers = regexp.MustCompile(`\d[\d,]{2,}`)

// Room extracts from a vendor's message about a too long conversation its number of tokens and the maximum; ok is false
// unless the message has exactly these two numbers.
func Room(said string) (tokens, most int64, ok bool) {
	var found []int64
	for _, text := range numbers.FindAllString(said, -1) {
		if len(found) > 2 {
			break
		}
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
