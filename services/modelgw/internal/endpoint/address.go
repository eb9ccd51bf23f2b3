package endpoint

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
)

// address is the part of a request that Gemini's format has in its address.
type address struct {
	// model is the platform's name of the model.
	model string
	// method is what is asked of the model.
	method string
	// list means that a stream is a JSON list, since the client did not ask for events.
	list bool
}

// Methods of Gemini's API.
const (
	methodGenerate = "generateContent"
	methodStream   = "streamGenerateContent"
	methodCount    = "countTokens"
)

// altMember is the member of a query that says which form an answer has, and altEvents is that of events.
const (
	altMember = "alt"
	altEvents = "sse"
)

// method calls a method of a model below an address without `models/`, which the AI SDK leaves out of names with a
// slash: `/v1beta/openai/gpt-4o:generateContent`.
func (e *Endpoints) method(ctx context.Context, x *exchange) error {
	if x.request.Method != http.MethodPost {
		return notSpoken(ctx, x)
	}
	return e.modelOrMethod(ctx, x)
}

// modelOrMethod answers about a model, or calls a method of it: `models/openai/gpt-4o:generateContent`.
func (e *Endpoints) modelOrMethod(ctx context.Context, x *exchange) error {
	if x.request.Method != http.MethodPost {
		if x.request.Method != http.MethodGet {
			x.out.Header().Set("Allow", http.MethodGet+", "+http.MethodPost)
			return refuse(http.StatusMethodNotAllowed, x.request.URL.Path+" takes GET, and with a method of the model POST")
		}
		return e.getModel(ctx, x)
	}
	at := strings.LastIndexByte(x.request.PathValue("model"), ':') // Names of some models have colons too.
	if at < 0 {
		return notSpoken(ctx, x)
	}
	x.address = address{model: x.request.PathValue("model")[:at], method: x.request.PathValue("model")[at+1:]}
	switch x.address.method {
	case methodGenerate:
		return e.generate(ctx, x)
	case methodStream:
		x.address.list = x.request.URL.Query().Get(altMember) != altEvents
		return e.generate(ctx, x)
	case methodCount:
		return e.count(ctx, x)
	default:
		return notSpoken(ctx, x)
	}
}

// below is what follows the address of a model's API in a relayed request.
func (a address) below() string {
	if a.method == "" {
		return ""
	}
	return ":" + a.method
}

// complete fills in what the address says.
func (a address) complete(r *dialect.Request) {
	if a.method != "" {
		r.Model, r.Stream = a.model, a.method == methodStream
	}
}

// query is the query of a request for the vendor. The platform's own token may be in it. Of a format that has a list of
// them only those members reach the vendor, each once: others of Google's take the usage out of an answer, or give
// another credential.
func (x *exchange) query() string {
	if x.request.URL.RawQuery == "" {
		return ""
	}
	values := x.request.URL.Query()
	values.Del("key")
	if x.queried == nil {
		return values.Encode()
	}
	passed := url.Values{}
	for _, name := range x.queried {
		if values.Has(name) {
			passed.Set(name, values.Get(name))
		}
	}
	return passed.Encode()
}

// sink is where a stream of the client's format is written. Closing it ends the stream and nothing below.
func (x *exchange) sink() io.WriteCloser {
	if x.address.list {
		return &listWriter{out: x.out}
	}
	return eventWriter{x.out}
}

type eventWriter struct{ io.Writer }

func (eventWriter) Close() error { return nil }

// listWriter writes the events that it is given, each in one call, as the items of a JSON list.
type listWriter struct {
	out   io.Writer
	begun bool
}

// Write writes an event.
func (l *listWriter) Write(frame []byte) (int, error) {
	opening := "["
	if l.begun {
		opening = ",\n"
	}
	l.begun = true
	item := strings.TrimSpace(strings.TrimPrefix(string(frame), string(dataField)))
	if _, err := io.WriteString(l.out, opening+item); err != nil {
		return 0, err
	}
	return len(frame), nil
}

// Close ends the list.
func (l *listWriter) Close() error {
	if !l.begun {
		return errors.New("a stream ended without an event")
	}
	_, err := io.WriteString(l.out, "]\n")
	return err
}
