package endpoint

import (
	"io"
	"net/http"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// format is a vendor's format as it is served.
type format struct {
	// dialect is its name, as providers state theirs.
	dialect string
	// idHeader is the header that names a request in an answer; idPrefix begins the ids of answers.
	idHeader, idPrefix string
	// bounds are the members that bound output tokens, the one that counts first.
	bounds []string
	// passed are the client's headers that reach the vendor, in the canonical form.
	passed []string
	// members are the names that options of a configuration have in requests, where they are not the same.
	members map[string]string
	// glance picks what accounts need from an answer, or from the data of one of its events.
	glance func([]byte, *dialect.Facts)
	// parse reads a request into the canonical form; parseCount a question for a number of tokens, where the format has one.
	parse, parseCount func([]byte) (*asked, error)
	// encode appends an output as an answer; stream writes one as events.
	encode func([]byte, *modelv1.ModelOutput, meta) ([]byte, error)
	stream func(io.Writer, meta) streamWriter
	// fail writes the body of an error. tooLong is that of a conversation which the model has no room for, by what its vendor said of it.
	fail    func(dialect.Failure) []byte
	tooLong func(said string) dialect.Failure
	// list and entry write models.
	list  func([]model) []byte
	entry func(model) []byte
}

// asked is a request in the canonical form.
type asked struct {
	model                string
	messages             []*modelv1.ChatMessage
	tools                []*toolv1.ToolInfo
	choice               *toolv1.ToolChoice
	config               *modelv1.GenerateConfig
	stream, includeUsage bool
}

// meta is what an answer says beside the output.
type meta struct {
	id, model    string
	created      int64
	includeUsage bool
}

// streamWriter writes an answer as it comes.
type streamWriter interface {
	// Write writes a piece.
	Write(delta *modelv1.GenerateDelta) error
	// Close writes what was not streamed, and the end.
	Close(output *modelv1.ModelOutput) error
	// Ping says nothing, but that the answer still comes.
	Ping() error
	// Fail ends the answer with an error.
	Fail(dialect.Failure) error
}

// formatOf returns whose client asks, where a path is several vendors': Anthropic's clients state a version.
func formatOf(r *http.Request) *format {
	if r.Header.Get(versionHeader) != "" || strings.HasPrefix(r.URL.Path, "/v1/messages") {
		return messages
	}
	return chatCompletions
}

const versionHeader = "Anthropic-Version"

// chatCompletions is OpenAI's chat completions.
var chatCompletions = &format{
	dialect:  openaichat.Name,
	idHeader: "X-Request-Id",
	idPrefix: "chatcmpl-",
	bounds:   []string{"max_completion_tokens", "max_tokens"},
	passed:   []string{"Accept", "User-Agent", "Idempotency-Key", "X-Client-Request-Id", "Openai-Beta", "Openai-Organization", "Openai-Project"},
	members:  map[string]string{"num_choices": "n"},
	glance:   openaichat.Glance,
	parse: func(body []byte) (*asked, error) {
		r, err := openaichat.ParseRequest(body)
		if err != nil {
			return nil, err
		}
		return &asked{
			model: r.Model, messages: r.Messages, tools: r.Tools, choice: r.Choice, config: r.Config, stream: r.Stream, includeUsage: r.IncludeUsage,
		}, nil
	},
	encode: func(dst []byte, output *modelv1.ModelOutput, m meta) ([]byte, error) {
		return openaichat.AppendResponse(dst, output, openaichat.ResponseMeta{ID: m.id, Model: m.model, Created: m.created})
	},
	stream: func(w io.Writer, m meta) streamWriter {
		return openaichat.NewStreamWriter(w, openaichat.ResponseMeta{ID: m.id, Model: m.model, Created: m.created, IncludeUsage: m.includeUsage})
	},
	fail:    openaichat.EncodeError,
	tooLong: openaichat.TooLong,
	list:    openaiModels,
	entry:   openaiModel,
}

// messages is Anthropic's Messages API.
var messages = &format{
	dialect:    anthropic.Name,
	idHeader:   "Request-Id",
	idPrefix:   "msg_",
	bounds:     []string{"max_tokens"},
	passed:     []string{"Accept", "User-Agent", "Idempotency-Key", versionHeader, "Anthropic-Beta"},
	glance:     anthropic.Glance,
	parse:      func(body []byte) (*asked, error) { return askedOf(anthropic.ParseRequest(body)) },
	parseCount: func(body []byte) (*asked, error) { return askedOf(anthropic.ParseCount(body)) },
	encode: func(dst []byte, output *modelv1.ModelOutput, m meta) ([]byte, error) {
		return anthropic.AppendResponse(dst, output, anthropic.ResponseMeta{ID: m.id, Model: m.model})
	},
	stream: func(w io.Writer, m meta) streamWriter {
		return anthropic.NewStreamWriter(w, anthropic.ResponseMeta{ID: m.id, Model: m.model})
	},
	fail:    anthropic.EncodeError,
	tooLong: anthropic.TooLong,
	list:    anthropicModels,
	entry:   anthropicModel,
}

func askedOf(r *anthropic.Request, err error) (*asked, error) {
	if err != nil {
		return nil, err
	}
	return &asked{model: r.Model, messages: r.Messages, tools: r.Tools, choice: r.Choice, config: r.Config, stream: r.Stream}, nil
}
