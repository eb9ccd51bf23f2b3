package endpoint

import (
	"context"
	"net/http"
	"regexp"
	"strings"
)

// geminiCall is a call in Gemini's API, whose paths start like those of models.
var geminiCall = regexp.MustCompile(`^/v1/models/.*:\w+$`)

// instead maps the path of an unsupported interface to the one to use.
var instead = []struct {
	path *regexp.Regexp
	name string
	step string
}{
	{regexp.MustCompile(`^/v1/chat/completions`), "what lies below chat completions", "use POST /v1/chat/completions, without storing answers"},
	{regexp.MustCompile(`^/v1/responses`), "the Responses API", "let the client use chat completions, POST /v1/chat/completions"},
	{regexp.MustCompile(`^/v1/completions`), "the API of plain completions", "use chat completions, POST /v1/chat/completions"},
	{regexp.MustCompile(`^/v1/complete$`), "the API of text completions", "use the Messages API, POST /v1/messages"},
	{regexp.MustCompile(`^/v1/messages`), "what lies below the Messages API beside count_tokens", "use POST /v1/messages for each request"},
	{geminiCall, "Gemini's API", "use chat completions, POST /v1/chat/completions"},
}

// notSpoken refuses an unknown path, and names the one to use.
func notSpoken(_ context.Context, x *exchange) error {
	r := x.request
	asked := r.Method + " " + r.URL.Path
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		x.out.Header().Set("Upgrade", "HTTP/1.1")
		return refuse(http.StatusUpgradeRequired, "there are no websockets here ("+asked+"); ask over HTTP")
	}
	for _, other := range instead {
		if other.path.MatchString(r.URL.Path) {
			return refuse(http.StatusNotFound, other.name+" is not spoken here ("+asked+"); "+other.step)
		}
	}
	return refuse(http.StatusNotFound, "nothing here answers "+asked+"; there are POST /v1/chat/completions, POST /v1/messages, POST /v1/messages/count_tokens and GET /v1/models")
}
