package gemini

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// ModelPrefix precedes a model's name where it is in a body, and in lists of models.
const ModelPrefix = "models/"

// AppendCountRequest implements dialect.TokenCounter.
func (Codec) AppendCountRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	return plain(r).AppendCount(dst)
}

// AppendCount appends the body of the question for the number of the request's input tokens.
func (r *Request) AppendCount(dst []byte) ([]byte, error) {
	e := r.encoder(dst)
	e.Body.BeginObject()
	if r.PlainCount {
		e.counted()
		e.Body.EndObject()
		return e.Body.Bytes(), e.err
	}
	e.Body.BeginObjectMember("generateContentRequest")
	e.Body.TextMember("model", ModelPrefix+r.Model)
	e.members()
	e.Body.EndObject()
	e.Body.EndObject()
	return e.Body.Bytes(), e.err
}

// DecodeCountResponse implements dialect.TokenCounter.
func (Codec) DecodeCountResponse(body []byte) (tokens int64, err error) {
	var count struct {
		Total *int64   `json:"totalTokens"`
		Error *failure `json:"error"`
	}
	switch err := jsonread.Unmarshal(body, &count); {
	case err != nil:
		return 0, malformed(err)
	case count.Error != nil:
		return 0, count.Error.toError(body)
	case count.Total == nil:
		return 0, malformed(nil)
	default:
		return *count.Total, nil
	}
}

// ParseCountRequest implements dialect.TokenCounter: a client sends a whole request, or the turns alone.
func (c Codec) ParseCountRequest(body []byte) (*dialect.Request, error) {
	var w struct {
		Whole *wireRequest `json:"generateContentRequest"`
	}
	doc := camelCase(body)
	if err := jsonread.Unmarshal(doc, &w); err != nil {
		return nil, dialect.Unreadable(err)
	}
	if w.Whole != nil {
		return w.Whole.request()
	}
	return c.ParseRequest(doc)
}

// AppendCountResponse implements dialect.TokenCounter.
func (Codec) AppendCountResponse(dst []byte, tokens int64) []byte {
	w := jsonwrite.Append(dst, 32)
	w.BeginObject()
	w.IntMember("totalTokens", tokens)
	w.EndObject()
	return w.Bytes()
}
