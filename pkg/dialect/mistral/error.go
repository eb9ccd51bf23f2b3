package mistral

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// ObjectError is the kind of object that an error is. An answer may be one.
const ObjectError = "error"

// Errors implements the part of dialect.Codec that is about errors.
type Errors struct{}

const statusTooMany = 429

// rateLimits are types of errors that ask the client to slow down.
var rateLimits = []string{"rate_limited", "service_tier_capacity_exceeded"}

// DecodeError implements dialect.Codec. An error is an object with a message, or it has the form of OpenAI's, as
// servers in front of the API send it; a request with a wrong member has details in place of the message.
func (Errors) DecodeError(body []byte) *dialect.Error {
	var whole struct {
		Error  *openai.Failure `json:"error"`
		Detail json.RawMessage `json:"detail"`
		Status json.RawMessage `json:"raw_status_code"`
	}
	var own openai.Failure
	if json.Unmarshal(body, &whole) != nil || json.Unmarshal(body, &own) != nil {
		return &dialect.Error{Message: strings.TrimSpace(string(body))}
	}
	if whole.Error != nil {
		return whole.Error.ToError(body)
	}
	if own.Message == "" && jsonread.IsSet(whole.Detail) {
		own.Message = textOf(whole.Detail)
	}
	if own.Message == "" {
		return &dialect.Error{Message: strings.TrimSpace(string(body))}
	}
	said := own.ToError(body)
	switch status := openai.StatusOf(string(whole.Status)); {
	case status != 0:
		said.Status = status
	case slices.Contains(rateLimits, own.Type):
		said.Status = statusTooMany
	}
	return said
}

// textOf returns a text, or the JSON of any other value.
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// words are the type and the code of an error.
type words struct{ kind, code string }

// causeWords are the format's words for causes; statusWords those for statuses, where they differ from the words for
// all requests or for all servers.
var (
	causeWords = map[dialect.Cause]words{
		dialect.UnknownModel: {"invalid_model", "1500"},
		dialect.TooLong:      {typeInvalid, "3051"},
	}
	statusWords = map[int]words{
		401:           {"unauthorized", ""},
		403:           {"forbidden", ""},
		statusTooMany: {rateLimits[0], "1300"},
	}
)

const typeInvalid = "invalid_request_error"

// AppendError implements dialect.Codec.
func (Errors) AppendError(dst []byte, f dialect.Failure) []byte {
	known, ok := causeWords[f.Cause]
	if !ok {
		known, ok = statusWords[f.Status]
	}
	if !ok {
		known.kind = "internal_server_error"
		if f.Status < 500 {
			known.kind = typeInvalid
		}
	}
	w := jsonwrite.Append(dst, 160+len(f.Message))
	w.BeginObject()
	w.TextMember("object", ObjectError)
	w.TextMember("message", f.Message)
	w.TextMember("type", known.kind)
	w.TextOrNull("param", f.Param)
	w.TextOrNull("code", known.code)
	w.IntMember("raw_status_code", int64(f.Status))
	w.EndObject()
	return w.Bytes()
}

// tooLong are the words of a full context, in lower case.
var tooLong = []string{"maximum context length", "input too large"}

// TooLong implements dialect.Codec.
func (Errors) TooLong(said string) dialect.Failure {
	message := "Input too large: " + said
	if tokens, most, ok := dialect.Room(said); ok {
		message = fmt.Sprintf("Prompt contains %d tokens, too large for model with %d maximum context length", tokens, most)
	}
	return dialect.Failure{Status: dialect.BadRequest, Cause: dialect.TooLong, Message: message}
}

// Stopped implements dialect.Codec. The API has no words for filtered content.
func (Errors) Stopped(status int, e *dialect.Error, model string) (output *modelv1.ModelOutput, ok bool) {
	if status != dialect.BadRequest || !dialect.Mentions(strings.ToLower(e.Message), tooLong) {
		return nil, false
	}
	return dialect.ContextFull(model, e.Message), true
}
