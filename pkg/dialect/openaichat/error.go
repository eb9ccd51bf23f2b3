package openaichat

import (
	"encoding/json"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/encode"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Error is what a server says when it fails.
type Error struct {
	Message string
	// Type and Code are the server's words; either may be empty.
	Type, Code string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// failure is an error on the wire. Servers differ in the types of its members.
type failure struct {
	Message string
	Type    string
	Code    string
}

// UnmarshalJSON reads an object, of which members of other types than text are taken as their JSON, or a bare text.
func (f *failure) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &f.Message) == nil {
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		f.Message = string(raw)
		return nil
	}
	f.Message, f.Type, f.Code = word(members["message"]), word(members["type"]), word(members["code"])
	return nil
}

func word(raw json.RawMessage) string {
	var text string
	if raw == nil || json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

func (f *failure) toError(body []byte) *Error {
	if f.Message == "" {
		f.Message = string(body)
	}
	return &Error{Message: f.Message, Type: f.Type, Code: f.Code}
}

// DecodeError reads the body of an answer that is an error. What is in no known form is taken as the message.
func DecodeError(body []byte) *Error {
	var whole struct {
		Error   *failure `json:"error"`
		Message string   `json:"message"`
	}
	if json.Unmarshal(body, &whole) != nil {
		return &Error{Message: strings.TrimSpace(string(body))}
	}
	if whole.Error != nil {
		return whole.Error.toError(body)
	}
	if whole.Message != "" {
		return &Error{Message: whole.Message}
	}
	return &Error{Message: strings.TrimSpace(string(body))}
}

// EncodeError writes an error as the format has it. kind is its type, such as `invalid_request_error`; empty takes the one that goes with the status. A code is there where the
// status has one of its own.
func EncodeError(status int, kind, message string) []byte {
	known := errorKinds[status]
	if known.kind == "" {
		known.kind = "api_error"
		if status < 500 {
			known.kind = "invalid_request_error"
		}
	}
	if kind != "" {
		known.kind = kind
	}
	var w encode.Writer
	w.BeginObject()
	w.Key("error")
	w.BeginObject()
	w.TextMember("message", message)
	w.TextMember("type", known.kind)
	w.Key("param")
	w.Null()
	w.Key("code")
	if known.code == "" {
		w.Null()
	} else {
		w.Text(known.code)
	}
	w.EndObject()
	w.EndObject()
	return w.Bytes()
}

// errorKinds are types and codes of errors by status, where they are not those of all requests or of all servers.
var errorKinds = map[int]struct{ kind, code string }{
	401: {"invalid_request_error", "invalid_api_key"},
	404: {"invalid_request_error", "model_not_found"},
	429: {"rate_limit_error", "rate_limit_exceeded"},
}

// kindRefusal is the kind of a stop that is the provider's refusal.
const kindRefusal = "refusal"

// Stop returns the output that an error of a bad request stands for: the context is full, or the content is not wanted. ok is false where it is an
// error and no more.
func (e *Error) Stop(model string) (output *modelv1.ModelOutput, ok bool) {
	const filtered = modelv1.StopReason_STOP_REASON_CONTENT_FILTER
	switch e.Code {
	case "context_length_exceeded":
		return chat.MessageOutput(model, chat.Assistant(e.Message), modelv1.StopReason_STOP_REASON_MODEL_LENGTH), true
	case "invalid_prompt", "content_policy_violation", "content_filter":
		output = chat.MessageOutput(model, chat.Assistant(e.Message), filtered)
		output.Choices[0].StopDetails = chat.NewStopDetails(kindRefusal, "", e.Message)
		return output, true
	case "cyber_policy":
		output = chat.MessageOutput(model, chat.Assistant(e.Message), filtered)
		output.Choices[0].StopDetails = chat.NewStopDetails(kindRefusal, "", e.Message, &modelv1.StopCategory{Category: "cyber"})
		return output, true
	}
	if e.Type == "invalid_request_error" && strings.Contains(e.Message, "blocked") {
		output = chat.MessageOutput(model, chat.Assistant(e.Message), filtered)
		output.Choices[0].StopDetails = chat.NewStopDetails(kindRefusal, "", e.Message)
		return output, true
	}
	return nil, false
}
