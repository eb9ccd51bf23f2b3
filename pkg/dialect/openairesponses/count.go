package openairesponses

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// counted is the member of an answer that is a number of tokens.
const counted = "input_tokens"

// AppendCountRequest implements dialect.TokenCounter.
func (Codec) AppendCountRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	return (&Request{Request: *r}).AppendCount(dst)
}

// AppendCount appends the body of the question for the number of the request's input tokens:
// https://platform.openai.com/docs/api-reference/responses/input-tokens. Other members of a request are refused there.
// A summary of reasoning is none of the input.
func (r *Request) AppendCount(dst []byte) ([]byte, error) {
	c := cmp.Or(r.Config, &modelv1.GenerateConfig{})
	return (&Request{Request: dialect.Request{
		Model: r.Model, Messages: r.Messages, Tools: r.Tools, Choice: r.Choice,
		Config: &modelv1.GenerateConfig{
			ParallelToolCalls: c.ParallelToolCalls, ReasoningEffort: c.ReasoningEffort, ReasoningMode: c.ReasoningMode,
			ResponseSchema: c.ResponseSchema, Verbosity: c.Verbosity,
		},
	}, Phases: r.Phases, Native: r.Native, ImageTool: r.ImageTool}).Append(dst)
}

// ParseCountRequest implements dialect.TokenCounter: the members of the question have their meaning in a request.
func (c Codec) ParseCountRequest(body []byte) (*dialect.Request, error) { return c.ParseRequest(body) }

// DecodeCountResponse implements dialect.TokenCounter.
func (c Codec) DecodeCountResponse(body []byte) (tokens int64, err error) {
	return dialect.DecodeCount(c, body, counted, malformed)
}

// AppendCountResponse implements dialect.TokenCounter.
func (Codec) AppendCountResponse(dst []byte, tokens int64) []byte {
	w := jsonwrite.Append(dst, 64)
	w.BeginObject()
	w.TextMember("object", "response.input_tokens")
	w.IntMember(counted, tokens)
	w.EndObject()
	return w.Bytes()
}
