package anthropic

import "github.com/evalfleet/evalfleet/pkg/dialect"

// counted is the member of an answer that is a number of tokens.
const counted = "input_tokens"

// AppendCountRequest implements dialect.TokenCounter.
func (Codec) AppendCountRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	return arranged(r).AppendCount(dst)
}

// ParseCountRequest implements dialect.TokenCounter: the body is a request without the options that bound the answer.
func (Codec) ParseCountRequest(body []byte) (*dialect.Request, error) {
	_, r, err := parse(body)
	return r, err
}

// DecodeCountResponse implements dialect.TokenCounter.
func (c Codec) DecodeCountResponse(body []byte) (tokens int64, err error) {
	return dialect.DecodeCount(c, body, counted, malformed)
}

// AppendCountResponse implements dialect.TokenCounter.
func (Codec) AppendCountResponse(dst []byte, tokens int64) []byte {
	return dialect.AppendCount(dst, counted, tokens)
}
