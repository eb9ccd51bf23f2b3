package transport

import (
	"fmt"
	"strings"
	"time"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// longestText is how long a text in a record may be that looks like media.
const longestText = 256

// mediaLeftOut replaces media in a record.
const mediaLeftOut = "[media left out]"

// accessLeftOut replaces the credentials of servers whose tools a vendor calls.
const accessLeftOut = "[access left out]"

// maxText bounds how much of a text that is not JSON a record stores: a page, or an answer that broke off.
const maxText = 64 << 10

// Attempt makes an attempt: it takes the time, and records the exchange if that is asked for. run makes the requests
// and returns the output, and the part of the answers to record; request is then the first request as JSON.
func Attempt(r *provider.Request, request func() []byte, run func() (output *modelv1.ModelOutput, answer []byte, err error)) (*provider.Response, error) {
	start := time.Now()
	output, answer, err := run()
	if err != nil {
		return nil, r.Recorded(err, func() *modelv1.ModelCall { return Record(request(), answer, true, start) })
	}
	output.Time = provider.Clock(start)
	response := &provider.Response{Output: output}
	if r.Record.Of(nil) {
		response.Call = Record(request(), answer, false, start)
	}
	return response, nil
}

// Record records the exchange since start, without media and without credentials of the request. A nil response is
// omitted.
func Record(request, response []byte, failed bool, start time.Time) *modelv1.ModelCall {
	call := &modelv1.ModelCall{RequestJson: withoutMedia(request), Error: failed, Time: provider.Clock(start)}
	if response != nil {
		call.ResponseJson = withoutMedia(response)
	}
	return call
}

// withoutMedia returns a document without data URIs and similar media. A text that is no JSON object becomes the member
// `body` of one.
func withoutMedia(document []byte) string {
	value, err := orderedjson.Decode(document)
	if err != nil {
		text := string(document)
		if len(text) > maxText {
			text = fmt.Sprintf("%s… [%d bytes left out]", strings.ToValidUTF8(text[:maxText], ""), len(text)-maxText)
		}
		value = text
	}
	value = elide(value)
	object, ok := value.(*orderedjson.Object)
	if !ok {
		object = &orderedjson.Object{}
		object.Set("body", value)
	}
	return string(orderedjson.Append(nil, object))
}

// holdsCredential reports whether a member of a server whose tools a vendor calls holds its credential: of
// `mcp_servers` at Anthropic, of a tool of the type `mcp` at OpenAI.
func holdsCredential(o *orderedjson.Object, name string) bool {
	kind, _ := o.Get("type")
	return kind == "url" && name == "authorization_token" || kind == "mcp" && (name == "authorization" || name == "headers")
}

// elide replaces media and credentials in a value that orderedjson.Decode returned.
func elide(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = elide(v[i])
		}
	case *orderedjson.Object:
		for name, member := range v.All() {
			text, isText := member.(string)
			if holdsCredential(v, name) {
				v.Set(name, accessLeftOut)
			} else if isText && (name == "data" || name == "file_data") && len(text) > longestText {
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
