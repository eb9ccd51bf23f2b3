package anthropic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// failure is an error on the wire.
type failure struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// UnmarshalJSON reads an object, and takes anything else as the message.
func (f *failure) UnmarshalJSON(raw []byte) error {
	type plain failure
	if json.Unmarshal(raw, (*plain)(f)) != nil {
		*f = failure{Message: strings.Trim(string(raw), `"`)}
	}
	return nil
}

func (f *failure) toError(body []byte) *dialect.Error {
	if f.Message == "" {
		f.Message = string(body)
	}
	return said(f.Message, f.Type)
}

// said is an error with this message.
func said(message, kind string) *dialect.Error {
	return &dialect.Error{Message: message, Type: kind, Status: errorTypes.Status(kind), Transient: transient(message, kind)}
}

// DecodeError implements dialect.Codec. What is between a client and the API may answer with a bare message.
func (Codec) DecodeError(body []byte) *dialect.Error {
	var whole struct {
		Error   *failure `json:"error"`
		Message string   `json:"message"`
	}
	if json.Unmarshal(body, &whole) != nil || whole.Error == nil {
		return said(cmp.Or(whole.Message, strings.TrimSpace(string(body))), "")
	}
	return whole.Error.toError(body)
}

// Statuses of HTTP that have a type of error.
const (
	statusTooLarge   = 413
	statusOverloaded = 529
)

const typeOverloaded = "overloaded_error"

// errorTypes are the types of errors.
var errorTypes = dialect.ErrorTypes{Client: "invalid_request_error", Server: "api_error", ByStatus: map[int]string{
	dialect.BadRequest: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error", 409: "conflict_error",
	statusTooLarge: "request_too_large", 429: "rate_limit_error", 500: "api_error", 504: "timeout_error", statusOverloaded: typeOverloaded,
}}

const promptTooLong = "prompt is too long"

// tooLarge is said in the place of a server that says nothing.
const tooLarge = "the request is too large"

// tooLong are words of error messages about a full context.
var tooLong = []string{promptTooLong, "input is too long", "input length and `max_tokens` exceed"}

// declined is the substitute for the model's text when the server's filter stopped it.
const declined = "I am sorry, but I cannot help with that."

// Stopped implements dialect.Codec.
func (Codec) Stopped(status int, e *dialect.Error, model string) (output *modelv1.ModelOutput, ok bool) {
	text, message := e.Message, strings.ToLower(e.Message)
	switch {
	case status == statusTooLarge, dialect.Mentions(message, tooLong):
		text = cmp.Or(text, tooLarge)
		output = dialect.ContextFull(model, text)
	case strings.Contains(message, "content filtering"):
		output = chat.MessageOutput(model, chat.Assistant(declined), modelv1.StopReason_STOP_REASON_CONTENT_FILTER)
	default:
		return nil, false
	}
	output.Error = &text
	return output, true
}

// transient reports whether the same request may succeed later, whatever the status of the error: servers report
// overload, their own faults, and truncated requests with misleading statuses.
func transient(message, kind string) bool {
	message = strings.ToLower(message)
	cut := strings.Contains(message, "not valid json") && strings.Contains(message, "unexpected end of data")
	return kind == typeOverloaded || strings.Contains(message, "overloaded") || strings.Contains(message, "internal server error") || cut
}

// AppendError implements dialect.Codec.
func (Codec) AppendError(dst []byte, f dialect.Failure) []byte {
	w := jsonwrite.Append(dst, 128+len(f.Message))
	w.BeginObject()
	w.TextMember("type", "error")
	w.BeginObjectMember("error")
	w.TextMember("type", errorTypes.Of(f.Status))
	w.TextMember("message", f.Message)
	if f.Cause == dialect.NoThreads {
		w.RawMember("details", `{"error_code":"thread_unsupported_request"}`)
	}
	w.EndObject()
	w.TextUnlessEmpty("request_id", f.RequestID)
	w.EndObject()
	return w.Bytes()
}

// TooLong implements dialect.Codec. Clients know it by its first words.
func (Codec) TooLong(said string) dialect.Failure {
	message := said
	if tokens, most, ok := dialect.Room(said); ok {
		message = fmt.Sprintf("%s: %d tokens > %d maximum", promptTooLong, tokens, most)
	} else if !strings.HasPrefix(said, promptTooLong) {
		message = promptTooLong + ": " + said
	}
	return dialect.Failure{Status: dialect.BadRequest, Cause: dialect.TooLong, Message: message}
}
