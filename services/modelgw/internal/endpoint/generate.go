package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// modelMember is the member that names the model, in every format.
const modelMember = "model"

// generate answers a request for an answer of a model, in the lane that fits.
func (e *Endpoints) generate(ctx context.Context, x *exchange) error {
	return e.choose(ctx, x, "", func(r *relay, found []jsonscan.Span) error {
		call := &generate.Call{Model: r.model, Origin: x.origin(), UnreadTokens: r.inputTokens(), MaxWait: e.cfg.MaxRetryWait}
		call.Config = &modelv1.GenerateConfig{MaxTokens: outputBound(r.body.Bytes, found[1:]), MaxRetries: new(int32(e.cfg.MaxRetries))}
		return r.run(ctx, call, e.deps.Stages)
	}, e.convert)
}

// count returns the number of tokens of a request: the vendor's count if it has the model, else an estimate. Neither
// takes a slot or costs anything.
func (e *Endpoints) count(ctx context.Context, x *exchange) error {
	x.triesAgain = false
	return e.choose(ctx, x, "/count_tokens", func(r *relay, _ []jsonscan.Span) error {
		return r.run(ctx, &generate.Call{Model: r.model, Origin: x.origin()}, nil)
	}, e.estimate)
}

// choose reads a request and selects the lane: direct if the model's provider speaks the client's format below its
// path, else converted.
func (e *Endpoints) choose(
	ctx context.Context, x *exchange, below string, direct func(*relay, []jsonscan.Span) error,
	converted func(context.Context, *exchange, *provider.Model, []byte) error,
) error {
	b, err := readBody(x.request, e.cfg.MaxBodyBytes)
	if err != nil {
		return err
	}
	defer b.Release()
	found, err := x.scan(b.Bytes)
	if err != nil {
		return err
	}
	name, isText := jsonscan.Text(found[0].Of(b.Bytes))
	if !isText || name == "" {
		return dialect.Required(modelMember)
	}
	m, err := e.open(x, name)
	if err != nil {
		return err
	}
	upstream := m.Capabilities().Upstream
	if upstream == nil || upstream.Dialect != x.about.Name || x.request.Header.Get(cacheHeader) != "" {
		if !jsonscan.AtMost(b.Bytes, bound.RequestValues) {
			return refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body may have %d JSON values for a model whose provider has another format", bound.RequestValues))
		}
		return converted(ctx, x, m, b.Bytes)
	}
	url := upstream.URL + below
	if query := x.request.URL.RawQuery; query != "" {
		url += "?" + query
	}
	return direct(&relay{exchange: x, endpoints: e, model: m, upstream: upstream, url: url, body: splice(b, found[0], upstream.Model)}, found)
}

// scan finds the values that the lanes need: the model, and the bounds of output tokens.
func (f *format) scan(doc []byte) ([]jsonscan.Span, error) {
	names := append([]string{modelMember}, f.about.OutputBounds...)
	found := make([]jsonscan.Span, len(names))
	err := jsonscan.Object(doc, names, found)
	if duplicate, ok := errors.AsType[*jsonscan.DuplicateError](err); ok {
		return nil, dialect.Invalid(duplicate.Name, "is there more than once")
	}
	if err != nil {
		return nil, dialect.Invalid("", "the body %v", err)
	}
	return found, nil
}

// outputBound returns the bound of output tokens; nil where the request has none.
func outputBound(doc []byte, found []jsonscan.Span) *int64 {
	for _, span := range found {
		if n, ok := jsonscan.Int(span.Of(doc)); ok && n > 0 {
			return &n
		}
	}
	return nil
}

// origin identifies on whose behalf a call is made.
func (x *exchange) origin() provider.Origin {
	return provider.Origin{Project: x.project, RequestID: x.id}
}
