package endpoint

import (
	"context"
	"net/http"
	"regexp"
)

// instead maps the path of an unsupported interface to the one to use.
var instead = []struct {
	path *regexp.Regexp
	name string
	step string
}{
	{regexp.MustCompile(`^/v1/chat/completions`), "what lies below chat completions", "use POST /v1/chat/completions, without storing answers"},
	{
		regexp.MustCompile(`^/v1/responses`), "what lies below the Responses API beside input_tokens and compact",
		"use POST /v1/responses with the whole conversation, since answers are not stored here",
	},
	{regexp.MustCompile(`^/v1/completions`), "the API of plain completions", "use chat completions, POST /v1/chat/completions"},
	{regexp.MustCompile(`^/v1/complete$`), "the API of text completions", "use the Messages API, POST /v1/messages"},
	{regexp.MustCompile(`^/v1/messages`), "what lies below the Messages API beside count_tokens", "use POST /v1/messages for each request"},
	{regexp.MustCompile(`^/(v1/|v1beta/)?models/.*:\w+$`), "this method of Gemini's API", "there are generateContent, streamGenerateContent and countTokens"},
	{regexp.MustCompile(`^/v1beta/`), "this part of Gemini's API", "use POST /v1beta/models/<model>:generateContent"},
}

// notSpoken refuses an unknown path, and names the one to use.
func notSpoken(_ context.Context, x *exchange) error {
	r := x.request
	asked := r.Method + " " + r.URL.Path
	for _, other := range instead {
		if other.path.MatchString(r.URL.Path) {
			return refuse(http.StatusNotFound, other.name+" is not spoken here ("+asked+"); "+other.step)
		}
	}
	return refuse(http.StatusNotFound, "nothing here answers "+asked+"; there are POST /v1/chat/completions, "+
		"POST /v1/responses, POST /v1/responses/input_tokens, POST /v1/responses/compact, POST /v1/messages, POST /v1/messages/count_tokens, "+
		"POST /v1beta/models/<model>:generateContent and GET /v1/models")
}
