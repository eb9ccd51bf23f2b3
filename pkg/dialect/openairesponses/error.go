package openairesponses

import (
	"encoding/json"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// codeFailed is the code of an error of the server's own.
const codeFailed = "server_error"

// DecodeError implements dialect.Codec. An error has one of three forms: a refusal as in chat completions, an answer
// that failed, and an event of a stream, whose members are its own.
func (c Codec) DecodeError(body []byte) *dialect.Error {
	said := c.Errors.DecodeError(body)
	var whole struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	_ = json.Unmarshal(body, &whole)
	if whole.Status == statusFailed {
		said.ResponseID = whole.ID
	}
	if said.Type == eventError {
		said.Type = "" // the event's
	}
	if said.Status == 0 {
		said.Status = statusOf(said.Code)
	}
	return said
}

// statusOf is the status of the codes of answers that failed.
func statusOf(code string) int {
	switch {
	case code == codeFailed, code == "vector_store_timeout":
		return 500
	case strings.Contains(code, "image"): // The image is at fault, in one of a dozen ways.
		return dialect.BadRequest
	default:
		return openai.StatusOf(code)
	}
}

// TooLong implements dialect.Codec.
func (c Codec) TooLong(said string) dialect.Failure {
	f := c.Errors.TooLong(said)
	f.Param = "input"
	return f
}

// Stopped implements dialect.Codec.
func (c Codec) Stopped(status int, e *dialect.Error, model string) (output *modelv1.ModelOutput, ok bool) {
	if e.Code == "image_content_policy_violation" {
		filtered := *e
		filtered.Code = "content_policy_violation"
		e = &filtered
	}
	output, ok = c.Errors.Stopped(status, e, model)
	if ok && e.ResponseID != "" {
		output.ResponseId = &e.ResponseID
	}
	return output, ok
}
