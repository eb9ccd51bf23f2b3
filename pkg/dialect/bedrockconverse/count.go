package bedrockconverse

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// counted is the member of an answer that is a number of tokens.
const counted = "inputTokens"

// AppendCountRequest implements dialect.TokenCounter.
func (Codec) AppendCountRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	return (&Request{Request: *r}).AppendCount(dst)
}

// AppendCount appends the body of the question for the number of the request's input tokens:
// https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_CountTokens.html.
func (r *Request) AppendCount(dst []byte) ([]byte, error) {
	e := r.encoder(dst)
	e.Body.BeginObject()
	e.Body.BeginObjectMember("input")
	e.Body.BeginObjectMember("converse")
	e.conversation()
	e.tools()
	e.fields()
	e.Body.EndObject()
	e.Body.EndObject()
	e.Body.EndObject()
	return e.Written()
}

// ParseCountRequest implements dialect.TokenCounter. A question of the form `invokeModel` has a request in the model's
// own format.
func (c Codec) ParseCountRequest(body []byte) (*dialect.Request, error) {
	var w struct {
		Input struct {
			Converse json.RawMessage `json:"converse"`
		} `json:"input"`
	}
	if err := jsonread.Unmarshal(body, &w); err != nil {
		return nil, dialect.Unreadable(err)
	}
	if !jsonread.IsSet(w.Input.Converse) {
		return nil, dialect.Required("input.converse")
	}
	return c.ParseRequest(w.Input.Converse)
}

// DecodeCountResponse implements dialect.TokenCounter.
func (c Codec) DecodeCountResponse(body []byte) (tokens int64, err error) {
	if f := (failure{}); jsonread.Unmarshal(body, &f) == nil && f != (failure{}) {
		return 0, c.DecodeError(body)
	}
	return dialect.DecodeCount(c, body, counted, malformed)
}

// AppendCountResponse implements dialect.TokenCounter.
func (Codec) AppendCountResponse(dst []byte, tokens int64) []byte {
	return dialect.AppendCount(dst, counted, tokens)
}
