package provider

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Class reports whether a failed attempt may be repeated.
type Class int

// Classes.
const (
	// Final failures recur on a retry.
	Final Class = iota
	// Transient failures may not recur; the request counts as retried.
	Transient
	// RateLimit failures may not recur, and ask the client to slow down.
	RateLimit
)

// Error is a failure of an upstream API.
type Error struct {
	Provider string
	Class    Class
	// Status is the HTTP status; 0 when there was none.
	Status int
	// Auth means that the API refused our credential.
	Auth bool
	// Invalid means that the API's answer cannot be decoded.
	Invalid bool
	// RetryAfter is the delay that the API asks for; zero is unset.
	RetryAfter time.Duration
	// Message is the API's message, for people.
	Message string
	// Call is the exchange with the API, if the request asked for a record.
	Call *modelv1.ModelCall
	// Cause is the underlying error, if any.
	Cause error
}

// Error names the provider, the status and the API's message, cut to a bound. The API's message about a refused
// credential is omitted, since it may repeat a part of the credential.
func (e *Error) Error() string {
	text := e.Provider
	if e.Status != 0 {
		text += " answered " + strconv.Itoa(e.Status)
	}
	said := e.Message
	switch {
	case e.Auth:
		said = "the key of the account was refused; check the account's configuration"
	case said == "" && e.Cause != nil:
		said = e.Cause.Error()
	}
	if said != "" {
		text += ": " + cut(said)
	}
	return text
}

func cut(text string) string {
	if len(text) <= maxQuoted {
		return text
	}
	return strings.ToValidUTF8(text[:maxQuoted], "") + "…"
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// maxQuoted bounds how much of the API's own message an error for the caller repeats, in bytes.
const maxQuoted = 500

// Ended is the end of an attempt's context, with the exchange until then. It wraps the context's error or cause.
type Ended struct {
	// Call is the request, and what of the answer had arrived.
	Call *modelv1.ModelCall
	// Cause is the context's error or cause.
	Cause error
}

// Error is the context's.
func (e *Ended) Error() string { return e.Cause.Error() }

// Unwrap returns the context's error.
func (e *Ended) Unwrap() error { return e.Cause }

// Recorded returns the error of an attempt with its record, if that is asked for: of a failure of the API, and of an
// exchange that the end of the context cut off.
func (r *Request) Recorded(err error, record func() *modelv1.ModelCall) error {
	if !r.Record.Of(err) {
		return err
	}
	if failure, ok := As(err); ok {
		failure.Call = record()
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrCut) {
		return &Ended{Call: record(), Cause: err}
	}
	return err
}

// ExchangeOf returns the exchange that the end of an attempt's context cut off; nil if there is none, or no record was
// requested.
func ExchangeOf(err error) *modelv1.ModelCall {
	if e, ok := errors.AsType[*Ended](err); ok {
		return e.Call
	}
	return nil
}

// ClassOf returns the class of an HTTP status as most APIs mean it.
func ClassOf(status int) Class {
	switch {
	case status == http.StatusTooManyRequests:
		return RateLimit
	case status == http.StatusRequestTimeout, status >= 500 && status < 600:
		return Transient
	default:
		return Final
	}
}

// Redirected is the failure of an attempt whose answer is a redirect. The redirect is not followed, since it would
// carry the account's key elsewhere; the caller's error is a bad gateway.
func Redirected(provider string) *Error {
	return &Error{Provider: provider, Status: http.StatusBadGateway, Message: "the server redirects; let the account's base_url name where the API is"}
}

// As returns the *Error in err's chain, if there is one.
func As(err error) (*Error, bool) { return errors.AsType[*Error](err) }

// Unsendable returns why a request was not sent, if a client has no credential of the account for it: its reason is in
// the client's error. Nil for any other failure of a client.
func Unsendable(err error) error {
	if failure, ok := As(err); ok {
		return failure
	}
	if refused, ok := errors.AsType[*rpcerr.Error](err); ok {
		return refused
	}
	return nil
}

// ClassOfError returns the class of any error of an attempt: that of an *Error, else Final.
func ClassOfError(err error) Class {
	if e, ok := As(err); ok {
		return e.Class
	}
	return Final
}

// RPC converts the last failure of a call to the caller's error, with the record of the exchange, if one was requested.
// Other errors are returned unchanged.
func RPC(err error) error {
	e, ok := As(err)
	if !ok {
		return err
	}
	refused := e.rpc(err)
	if e.Call != nil {
		_ = refused.WithDetail(Small(e.Call))
	}
	return refused
}

const (
	// maxDetail bounds each half of a record in an error, in bytes: the record is sent in a trailer and stored in a
	// journal.
	maxDetail = 32 << 10
	// maxDetailText bounds each text in a half that would be larger.
	maxDetailText = 1000
)

// Small is a record without the parts that are too long to store.
func Small(call *modelv1.ModelCall) *modelv1.ModelCall {
	return &modelv1.ModelCall{RequestJson: fitting(call.GetRequestJson()), ResponseJson: fitting(call.GetResponseJson()), Error: call.GetError(), Time: call.Time}
}

// fitting returns a document of at most maxDetail: as it is, with its long texts cut, or with nothing but its size.
func fitting(document string) string {
	if len(document) <= maxDetail {
		return document
	}
	if value, err := orderedjson.Decode([]byte(document)); err == nil {
		if short := string(orderedjson.Append(nil, cutTexts(value))); len(short) <= maxDetail {
			return short
		}
	}
	return `{"left_out":"` + strconv.Itoa(len(document)) + ` bytes"}`
}

// cutTexts cuts the long texts in a value that orderedjson.Decode returned.
func cutTexts(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = cutTexts(v[i])
		}
	case *orderedjson.Object:
		for name, member := range v.All() {
			v.Set(name, cutTexts(member))
		}
	case string:
		if over := len(v) - maxDetailText; over > 0 {
			return strings.ToValidUTF8(v[:maxDetailText], "") + "… [" + strconv.Itoa(over) + " bytes left out]"
		}
	}
	return value
}

// rpc is the failure in the caller's form; err is the error that contains e.
func (e *Error) rpc(err error) *rpcerr.Error {
	after := max(e.RetryAfter, shortestRetry)
	switch {
	case e.Auth:
		return rpcerr.ProviderCredentialsRejected(e.Provider, e.Status, "%w", err)
	case e.Class == RateLimit:
		return rpcerr.ProviderRateLimited(e.Provider, e.Status, after, "%w", err)
	case e.Class == Transient:
		return rpcerr.ProviderUnavailable(e.Provider, e.Status, after, "%w", err)
	case e.Invalid:
		return rpcerr.ProviderResponseInvalid(e.Provider, e.Status, "%w", err)
	default:
		return rpcerr.ProviderRejected(e.Provider, e.Status, "%w", err)
	}
}

// shortestRetry is the retry delay if the API does not specify one.
const shortestRetry = time.Second
