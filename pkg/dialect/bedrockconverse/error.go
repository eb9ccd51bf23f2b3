package bedrockconverse

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// failure is an error on the wire: https://docs.aws.amazon.com/bedrock/latest/APIReference/CommonErrors.html. The type
// is in the body of errors that are written here, and in events; AWS has it in a header (see ErrorType).
type failure struct {
	Type    string `json:"__type"`
	Message string `json:"message"`
}

// UnmarshalJSON reads an object, without the members that are of an unexpected type. Some services capitalize the
// message.
func (f *failure) UnmarshalJSON(raw []byte) error {
	type plain failure
	_ = json.Unmarshal(raw, (*plain)(f)) // It fails only after it has read all other members.
	return nil
}

func (f *failure) toError(body []byte) *dialect.Error {
	return &dialect.Error{Message: cmp.Or(f.Message, strings.TrimSpace(string(body))), Type: ErrorType(f.Type)}
}

// ErrorHeader is the header that has the type of an error.
const ErrorHeader = "X-Amzn-Errortype"

// ErrorType is the plain name of a type as AWS sends it, which may have a namespace before it, and an address behind
// it. Events of a stream begin it with a small letter.
func ErrorType(sent string) string {
	if _, name, ok := strings.Cut(sent, "#"); ok {
		sent = name
	}
	sent, _, _ = strings.Cut(sent, ":")
	if sent != "" {
		sent = strings.ToUpper(sent[:1]) + sent[1:]
	}
	return sent
}

// DecodeError implements dialect.Codec.
func (Codec) DecodeError(body []byte) *dialect.Error {
	var f failure
	if trimmed := strings.TrimSpace(string(body)); !jsonread.IsObject(trimmed) || json.Unmarshal(body, &f) != nil {
		return &dialect.Error{Message: trimmed}
	}
	return f.toError(body)
}

// Types of errors.
const (
	typeInvalid     = "ValidationException"
	typeDenied      = "AccessDeniedException"
	typeThrottled   = "ThrottlingException"
	typeInternal    = "InternalServerException"
	typeUnavailable = "ServiceUnavailableException"
	typeStream      = "ModelStreamErrorException"
	typeUnknownID   = "UnrecognizedClientException"
	typeNotFound    = "ResourceNotFoundException"
	typeLate        = "ModelTimeoutException"
	typeModel       = "ModelErrorException"
)

// errorTypes are the types of errors by status.
var errorTypes = dialect.ErrorTypes{Client: typeInvalid, Server: typeInternal, ByStatus: map[int]string{
	401: typeUnknownID, 403: typeDenied, 404: typeNotFound, 408: typeLate, 424: typeModel, 429: typeThrottled, 503: typeUnavailable, 529: typeUnavailable,
}}

// streamStatuses are the statuses of the errors that a stream may have:
// https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html.
var streamStatuses = map[string]int{typeInvalid: dialect.BadRequest, typeThrottled: 429, typeInternal: 500, typeUnavailable: 503, typeStream: 424}

// withinStream is an error of a stream. The API had accepted the request by then, so that what is not the request's
// fault may not recur; AWS says so of ModelStreamErrorException.
func (f *failure) withinStream(event []byte) *dialect.Error {
	e := f.toError(event)
	e.Status = streamStatuses[e.Type]
	e.Transient = e.Type != typeInvalid
	return e
}

// AppendError implements dialect.Codec.
func (Codec) AppendError(dst []byte, f dialect.Failure) []byte {
	w := jsonwrite.Append(dst, 64+len(f.Message))
	w.TextObject("__type", errorTypes.Of(f.Status), "message", f.Message)
	return w.Bytes()
}

const tooLong = "input is too long"

// tooLongWords are words of messages about a full context.
var tooLongWords = []string{"too many input tokens", "is too long"}

// Stopped implements dialect.Codec. The message becomes the text of the output, in small letters, as recorded of the
// reference implementation.
func (Codec) Stopped(status int, e *dialect.Error, model string) (output *modelv1.ModelOutput, ok bool) {
	if status != dialect.BadRequest || e.Type != "" && e.Type != typeInvalid {
		return nil, false
	}
	message := strings.ToLower(e.Message)
	if !dialect.Mentions(message, tooLongWords) {
		return nil, false
	}
	return dialect.ContextFull(model, message), true
}

// TooLong implements dialect.Codec.
func (Codec) TooLong(said string) dialect.Failure {
	return dialect.Failure{Status: dialect.BadRequest, Cause: dialect.TooLong, Message: "The model returned the following errors: " + tooLong + ": " + said}
}
