package chatapi

import (
	"errors"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat/encode"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// longestText is how long a text in a record may be that looks like media.
const longestText = 256

// mediaLeftOut stands in a record where media was.
const mediaLeftOut = "[media left out]"

// record keeps what was said, without media.
func record(request, response []byte, failed bool, start time.Time) *modelv1.ModelCall {
	call := &modelv1.ModelCall{RequestJson: withoutMedia(request), Error: failed, Time: provider.Clock(start)}
	if response != nil {
		call.ResponseJson = withoutMedia(response)
	}
	return call
}

// withoutMedia returns a document with data URIs and the like left out. What is no JSON object becomes the member `body` of one.
func withoutMedia(document []byte) string {
	value, err := orderedjson.Decode(document)
	if err != nil {
		value = string(document)
	}
	value = elide(value)
	object, ok := value.(*orderedjson.Object)
	if !ok {
		object = &orderedjson.Object{}
		object.Set("body", value)
	}
	return string(orderedjson.Append(nil, object))
}

// elide replaces media in a value that orderedjson.Decode returned.
func elide(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = elide(v[i])
		}
	case *orderedjson.Object:
		for name, member := range v.All() {
			text, isText := member.(string)
			if isText && (name == "data" || name == "file_data") && len(text) > longestText {
				v.Set(name, mediaLeftOut)
			} else {
				v.Set(name, elide(member))
			}
		}
	case string:
		if len(v) > longestText && v[:5] == "data:" {
			return mediaLeftOut
		}
	}
	return value
}

// unsupported says that the format cannot say what the request holds.
func unsupported(name string, err error) error {
	what := err.Error()
	if u, ok := errors.AsType[*openaichat.UnsupportedError](err); ok {
		what = u.What
	}
	return rpcerr.FailedPrecondition(errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, "%s: %w", name, err).With("capability", what)
}

// Text returns a text as JSON, for members of a request.
func Text(text string) string { return string(encode.AppendText(nil, text)) }
