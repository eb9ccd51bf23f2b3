package endpoint

import (
	"net/http"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
)

// format is a served format of a vendor: its codec, and its use of HTTP.
type format struct {
	dialect.Codec
	// about is the codec's description of the format.
	about dialect.Format
	// counter counts tokens; nil if the format has no request for it.
	counter dialect.TokenCounter
	// idHeader is the header that names a request in an answer.
	idHeader string
	// passed are the client's headers that reach the vendor, in the canonical form.
	passed []string
	// list and entry write models.
	list  func([]model) []byte
	entry func(model) []byte
}

// formatOf returns the format of the client if several vendors share a path: Anthropic's clients send a version.
func formatOf(r *http.Request) *format {
	if r.Header.Get(versionHeader) != "" || strings.HasPrefix(r.URL.Path, "/v1/messages") {
		return messages
	}
	return chatCompletions
}

const versionHeader = "Anthropic-Version"

// chatCompletions is OpenAI's chat completions.
var chatCompletions = &format{
	Codec:    openaichat.Codec{},
	about:    openaichat.Codec{}.Format(),
	idHeader: "X-Request-Id",
	passed:   []string{"Accept", "User-Agent", "Idempotency-Key", "X-Client-Request-Id", "Openai-Beta", "Openai-Organization", "Openai-Project"},
	list:     openaiModels,
	entry:    openaiModel,
}

// messages is Anthropic's Messages API.
var messages = &format{
	Codec:    anthropic.Codec{},
	about:    anthropic.Codec{}.Format(),
	counter:  anthropic.Codec{},
	idHeader: "Request-Id",
	passed:   []string{"Accept", "User-Agent", "Idempotency-Key", versionHeader, "Anthropic-Beta"},
	list:     anthropicModels,
	entry:    anthropicModel,
}
