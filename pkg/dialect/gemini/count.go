package gemini

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
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
	if r.PlainCount { // Of the members that have tokens.
		e.conversation()
		e.offer()
	} else {
		e.Body.BeginObjectMember("generateContentRequest")
		e.Body.TextMember("model", ModelPrefix+r.Model)
		e.members()
		e.Body.EndObject()
	}
	e.Body.EndObject()
	return e.Written()
}

// counted is the member of an answer that is the number of tokens.
const counted = "totalTokens"

// DecodeCountResponse implements dialect.TokenCounter.
func (c Codec) DecodeCountResponse(body []byte) (tokens int64, err error) {
	return dialect.DecodeCount(c, body, counted, malformed)
}

// AppendCountResponse implements dialect.TokenCounter.
func (Codec) AppendCountResponse(dst []byte, tokens int64) []byte {
	return dialect.AppendCount(dst, counted, tokens)
}

// ParseCountRequest implements dialect.TokenCounter: a client sends a whole request, or the turns alone.
func (c Codec) ParseCountRequest(body []byte) (*dialect.Request, error) {
	var w struct {
		Whole *wireRequest `json:"generateContentRequest"`
	}
	doc := camel(body)
	if err := jsonread.Unmarshal(doc, &w); err != nil {
		return nil, dialect.Unreadable(err)
	}
	if w.Whole != nil {
		return w.Whole.request()
	}
	return c.ParseRequest(doc)
}
