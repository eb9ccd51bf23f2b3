// Package openai is what the formats of OpenAI's APIs share: errors, choices among tools, usage, log-probabilities, and
// the marks for the prompt cache. The formats are packages of their own, beside this one.
package openai

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Failure is an error on the wire. Servers differ in the types of its members.
type Failure struct {
	Message string
	Type    string
	Code    string
	Param   string
}

// UnmarshalJSON reads an object, of which members of other types than text are taken as their JSON, or a bare text.
func (f *Failure) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &f.Message) == nil {
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		f.Message = string(raw)
		return nil
	}
	f.Message, f.Type, f.Code, f.Param = word(members["message"]), word(members["type"]), word(members["code"]), word(members["param"])
	return nil
}

func word(raw json.RawMessage) string {
	var text string
	if raw == nil || json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// ToError returns the error. A failure without a message has all of the body as its message.
func (f *Failure) ToError(body []byte) *dialect.Error {
	if f.Message == "" {
		f.Message = string(body)
	}
	status := StatusOf(f.Code)
	if status == 0 && f.Type == typeTooFast {
		status = statusTooMany
	}
	return &dialect.Error{Message: f.Message, Type: f.Type, Code: f.Code, Param: f.Param, Status: status}
}

// StatusOf is the status of a code, or 0: some servers send the number itself.
func StatusOf(code string) int {
	if code == codeRateLimited || code == QuotaSpent {
		return statusTooMany
	}
	if n, err := strconv.Atoi(code); err == nil && n >= 100 && n < 600 {
		return n
	}
	return 0
}

// Errors implements the part of dialect.Codec that is about errors.
type Errors struct{}

// DecodeError implements dialect.Codec.
func (Errors) DecodeError(body []byte) *dialect.Error {
	var whole struct {
		Error   *Failure  `json:"error"`
		Errors  []Failure `json:"errors"` // as Cloudflare has it
		Message string    `json:"message"`
		Code    any       `json:"code"`
	}
	if json.Unmarshal(body, &whole) != nil {
		return &dialect.Error{Message: strings.TrimSpace(string(body))}
	}
	if whole.Error != nil {
		return whole.Error.ToError(body)
	}
	if len(whole.Errors) > 0 {
		return whole.Errors[0].ToError(body)
	}
	if whole.Message != "" || whole.Code != nil { // as vLLM, and events of the Responses API, have it
		var bare Failure
		_ = json.Unmarshal(body, &bare)
		return bare.ToError(body)
	}
	return &dialect.Error{Message: strings.TrimSpace(string(body))}
}

// AppendError implements dialect.Codec.
func (Errors) AppendError(dst []byte, f dialect.Failure) []byte {
	known, ok := causeWords[f.Cause]
	if !ok {
		known = statusWords[f.Status]
	}
	if known.kind == "" {
		known.kind = "api_error"
		if f.Status < 500 {
			known.kind = typeInvalid
		}
	}
	w := jsonwrite.Append(dst, 128+len(f.Message))
	w.BeginObject()
	w.BeginObjectMember("error")
	w.TextMember("message", f.Message)
	w.TextMember("type", known.kind)
	w.TextOrNull("param", f.Param)
	w.TextOrNull("code", known.code)
	w.EndObject()
	w.EndObject()
	return w.Bytes()
}

const (
	typeInvalid = "invalid_request_error"
	typeTooFast = "rate_limit_error"
	codeTooLong = "context_length_exceeded"

	codeRateLimited = "rate_limit_exceeded"
	statusTooMany   = 429
)

// QuotaSpent is the type and the code of an error for a quota that is used up.
const QuotaSpent = "insufficient_quota"

// words are the type and the code of an error.
type words struct{ kind, code string }

// causeWords are the format's words for causes; statusWords those for statuses, where they differ from the words for
// all requests or for all servers.
var (
	causeWords = map[dialect.Cause]words{
		dialect.Wrong:        {typeInvalid, "invalid_value"},
		dialect.Missing:      {typeInvalid, "missing_required_parameter"},
		dialect.Unsupported:  {typeInvalid, "unsupported_parameter"},
		dialect.NoThreads:    {typeInvalid, "previous_response_not_found"},
		dialect.UnknownModel: {typeInvalid, "model_not_found"},
		dialect.TooLong:      {typeInvalid, codeTooLong},
		dialect.QuotaSpent:   {QuotaSpent, QuotaSpent},
	}
	statusWords = map[int]words{
		401:           {typeInvalid, "invalid_api_key"},
		statusTooMany: {typeTooFast, codeRateLimited},
	}
)

// TooLong implements dialect.Codec.
func (Errors) TooLong(said string) dialect.Failure {
	message := "This model's maximum context length is exceeded: " + said
	if tokens, most, ok := dialect.Room(said); ok {
		message = fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", most, tokens)
	}
	return dialect.Failure{Status: dialect.BadRequest, Cause: dialect.TooLong, Param: "messages", Message: message}
}

// KindRefusal is the kind of a stop that is the provider's refusal.
const KindRefusal = "refusal"

// Stopped implements dialect.Codec.
func (Errors) Stopped(_ int, e *dialect.Error, model string) (output *modelv1.ModelOutput, ok bool) {
	const filtered = modelv1.StopReason_STOP_REASON_CONTENT_FILTER
	switch e.Code {
	case codeTooLong:
		return chat.MessageOutput(model, chat.Assistant(e.Message), modelv1.StopReason_STOP_REASON_MODEL_LENGTH), true
	case "invalid_prompt", "content_policy_violation", "content_filter":
		output = chat.MessageOutput(model, chat.Assistant(e.Message), filtered)
		output.Choices[0].StopDetails = chat.NewStopDetails(KindRefusal, "", e.Message)
		return output, true
	case "cyber_policy":
		output = chat.MessageOutput(model, chat.Assistant(e.Message), filtered)
		output.Choices[0].StopDetails = chat.NewStopDetails(KindRefusal, "", e.Message, &modelv1.StopCategory{Category: "cyber"})
		return output, true
	}
	if e.Type == typeInvalid && strings.Contains(e.Message, "blocked") {
		output = chat.MessageOutput(model, chat.Assistant(e.Message), filtered)
		output.Choices[0].StopDetails = chat.NewStopDetails(KindRefusal, "", e.Message)
		return output, true
	}
	return nil, false
}
