package endpoint

import (
	"cmp"
	"context"
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
	return e.choose(ctx, x, x.address.below(), func(r *relay, found *members) error {
		call := &generate.Call{Model: r.model, Origin: x.origin(), UnreadTokens: r.inputTokens(), MaxWait: e.cfg.MaxRetryWait}
		call.Config = &modelv1.GenerateConfig{MaxTokens: found.outputBound, MaxRetries: new(int32(e.cfg.MaxRetries))}
		return r.run(ctx, call, e.deps.Stages)
	}, e.convert)
}

// count returns the number of tokens of a request: the vendor's count if it has the model, else an estimate. Neither
// takes a slot or costs anything.
func (e *Endpoints) count(ctx context.Context, x *exchange) error {
	x.triesAgain = false
	below := cmp.Or(x.address.below(), "/count_tokens")
	return e.choose(ctx, x, below, func(r *relay, _ *members) error {
		return r.run(ctx, &generate.Call{Model: r.model, Origin: x.origin()}, nil)
	}, e.estimate)
}

// choose reads a request and selects the lane: direct if the model's provider speaks the client's format below its
// path, else converted.
func (e *Endpoints) choose(
	ctx context.Context, x *exchange, below string, direct func(*relay, *members) error,
	converted func(context.Context, *exchange, *provider.Model, []byte) error,
) error {
	b, err := readBody(x.request, e.cfg.MaxBodyBytes)
	if err != nil {
		return err
	}
	defer b.Release()
	found, err := x.scanner.scan(b.Bytes)
	if err != nil {
		return err
	}
	name := x.address.model
	if x.address.method == "" {
		name, _ = jsonscan.Text(found.model.Of(b.Bytes))
	}
	if name == "" {
		return dialect.Required(modelMember)
	}
	m, err := e.open(x, name)
	if err != nil {
		return err
	}
	upstream := m.Capabilities().Upstream(x.about.Name)
	if upstream == nil || x.address.list || x.request.Header.Get(cacheHeader) != "" {
		if !jsonscan.AtMost(b.Bytes, bound.RequestValues) {
			return refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body may have %d JSON values for a model whose provider has another format", bound.RequestValues))
		}
		return converted(ctx, x, m, b.Bytes)
	}
	url := upstream.URL + below
	if query := x.query(); query != "" {
		url += "?" + query
	}
	body := spliced{Buffer: b}
	if found.model.Found() {
		body = splice(b, found.model, x.modelPrefix+upstream.Model)
	}
	return direct(&relay{exchange: x, endpoints: e, model: m, upstream: upstream, url: url, body: body}, found)
}

// origin identifies on whose behalf a call is made.
func (x *exchange) origin() provider.Origin {
	return provider.Origin{Project: x.project, RequestID: x.id}
}
