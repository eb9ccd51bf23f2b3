package endpoint

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
)

// format is a served format of a vendor: its codec, and its use of HTTP.
type format struct {
	dialect.Codec
	// about is the codec's description of the format.
	about dialect.Format
	// counter counts tokens, nil if the format has no request for it. The request goes to counting, below the address
	// of others, or to a method of the model.
	counter  dialect.TokenCounter
	counting string
	// compactor writes compacted conversations; nil if clients of the format ask for no compaction.
	compactor dialect.Compactor
	// scanner finds the members of a request that the lanes need. modelPrefix is before the name of a model there.
	scanner     *scanner
	modelPrefix string
	// asksHosted reports whether a request may ask for a tool that the vendor runs, and demandsHosted means that
	// clients offer such a tool only where they need it.
	asksHosted    func(doc []byte) bool
	demandsHosted bool
	// habits are options that clients of the format set in every request. A model that does not take them is not sent
	// them.
	habits []string
	// mode returns the mode with prices of its own that the words of a request mean; nil if the format has none.
	mode func(words ...string) string
	// idHeader is the header that names a request in an answer.
	idHeader string
	// passed are the client's headers that reach the vendor, in the canonical form.
	passed []string
	// queried are the members of the query that reach the vendor; nil is all.
	queried []string
	// paged selects what a list of models has by the query; nil if the format's lists are whole.
	paged func(query url.Values, all []model) (page, error)
	// list and entry write models.
	list  func(page) []byte
	entry func(model) []byte
}

// formatOf returns the format of the client if several vendors share a path: Anthropic's clients send a version, and
// Google's a key in a header of their own or their name.
func formatOf(r *http.Request) *format {
	switch {
	case strings.HasPrefix(r.URL.Path, "/v1/messages"), r.Header.Get(versionHeader) != "":
		return messages
	case r.Header.Get("X-Goog-Api-Key") != "", r.Header.Get(googleClientHeader) != "":
		return generateContent
	case strings.HasPrefix(r.URL.Path, "/v1beta/"), strings.HasPrefix(r.URL.Path, "/models/"):
		return generateContent
	case strings.HasPrefix(r.URL.Path, "/v1/responses"):
		return responses
	default:
		return chatCompletions
	}
}

// formatOfModel returns the format of a client that names a model in the address. Methods of models are Gemini's,
// whatever the headers say; names of models have colons too.
func formatOfModel(r *http.Request) *format {
	if r.Method == http.MethodPost && strings.Contains(r.URL.Path, ":") {
		return generateContent
	}
	return formatOf(r)
}

const (
	versionHeader      = "Anthropic-Version"
	googleClientHeader = "X-Goog-Api-Client"
)

// openaiHeaders are the headers of OpenAI's clients that reach the vendor.
var openaiHeaders = []string{"Accept", "User-Agent", "Idempotency-Key", "X-Client-Request-Id", "Openai-Beta", "Openai-Organization", "Openai-Project"}

// inBody is the usual member that names the model.
var inBody = []string{modelMember}

// tiers are members of OpenAI's formats that ask for a mode of the vendor with prices of its own.
var tiers = []string{"service_tier"}

func tierOf(words ...string) string { return openai.Mode(strings.Join(words, " ")) }

// postponed are members with which an answer comes later, so that its usage would be unknown. No lane takes them,
// unless they are false.
var postponed = []string{"background"}

// chatCompletions is OpenAI's chat completions.
var chatCompletions = &format{
	Codec:    openaichat.Codec{},
	about:    openaichat.Codec{}.Format(),
	scanner:  newScanner(inBody, openaichat.Codec{}.Format().OutputBounds, tiers, nil),
	mode:     tierOf,
	idHeader: "X-Request-Id",
	passed:   openaiHeaders,
	list:     openaiModels,
	entry:    openaiModel,

	asksHosted:    chatHosting.asks,
	demandsHosted: true,
}

// responses is OpenAI's Responses API.
var responses = &format{
	Codec:     openairesponses.Codec{},
	about:     openairesponses.Codec{}.Format(),
	counter:   openairesponses.Codec{},
	counting:  "/input_tokens",
	compactor: openairesponses.Codec{},
	scanner:   newScanner(inBody, openairesponses.Codec{}.Format().OutputBounds, tiers, postponed),
	mode:      tierOf,
	idHeader:  "X-Request-Id",
	passed:    openaiHeaders,
	list:      openaiModels,
	entry:     openaiModel,

	asksHosted: func(doc []byte) bool { return responsesHosting.asks(doc) || asksInItems(doc) },
	habits:     []string{"verbosity"},
}

// messages is Anthropic's Messages API.
var messages = &format{
	Codec:    anthropic.Codec{},
	about:    anthropic.Codec{}.Format(),
	counter:  anthropic.Codec{},
	counting: "/count_tokens",
	scanner:  newScanner(inBody, anthropic.Codec{}.Format().OutputBounds, []string{"speed", "inference_geo"}, nil),
	mode:     anthropic.Mode,
	idHeader: "Request-Id",
	passed:   []string{"Accept", "User-Agent", "Idempotency-Key", versionHeader, "Anthropic-Beta"},
	paged:    anthropicPage,
	list:     anthropicModels,
	entry:    anthropicModel,

	asksHosted:    messagesHosting.asks,
	demandsHosted: true,
}

// generateContent is Gemini's API. The address of a request names the model and the method.
var generateContent = &format{
	Codec:       gemini.Codec{},
	about:       gemini.Codec{}.Format(),
	counter:     gemini.Codec{},
	scanner:     newScanner([]string{"generateContentRequest.model", "generate_content_request.model", modelMember}, gemini.Codec{}.Format().OutputBounds, nil, nil),
	modelPrefix: gemini.ModelPrefix,
	idHeader:    "X-Request-Id",
	passed:      []string{"Accept", "User-Agent", googleClientHeader},
	queried:     []string{altMember, "prettyPrint"},
	paged:       geminiPage,
	list:        geminiModels,
	entry:       geminiModel,
	asksHosted:  geminiHosting.asks,
	habits:      []string{"temperature", "top_p", "top_k"},
}
