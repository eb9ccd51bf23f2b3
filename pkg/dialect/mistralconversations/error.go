package mistralconversations

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// appendFailure appends the data of an event that ends a stream with an error.
func appendFailure(dst []byte, f dialect.Failure) []byte {
	w := jsonwrite.Append(dst, 128+len(f.Message))
	w.BeginObject()
	w.TextMember("type", eventError)
	w.TextMember("message", f.Message)
	w.IntMember("code", int64(f.Status))
	w.EndObject()
	return w.Bytes()
}
