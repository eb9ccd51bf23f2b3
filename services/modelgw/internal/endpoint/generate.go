package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// modelMember is the member that names the model, in every format.
const modelMember = "model"

// generate answers a request for an answer of a model, in the lane that fits.
func (e *Endpoints) generate(ctx context.Context, x *exchange) error {
	return e.ask(ctx, x, x.address.below())
}

// ask is generate, for what is below an address.
func (e *Endpoints) ask(ctx context.Context, x *exchange, below string) error {
	return e.choose(ctx, x, true, below, func(r *relay, found *members) (final bool, err error) {
		call := &generate.Call{
			Model: r.model, Origin: x.origin(), UnreadTokens: r.inputTokens(), MaxWait: e.cfg.MaxRetryWait, Serves: r.serves,
			Beginning: func() []byte { return beginning(r.body.Bytes) },
		}
		if x.mode != nil {
			call.Mode = x.mode(found.modes...)
		}
		call.Config = &modelv1.GenerateConfig{MaxTokens: found.outputBound}
		e.bound(call.Config)
		if x.compacts {
			r.optional, call.Compact = true, new("")
		}
		err = r.run(ctx, call, e.deps.Stages)
		if errors.Is(err, errLacksPath) {
			return !x.fallback, e.instead(ctx, r, e.convert)
		}
		return false, err
	}, e.convert)
}

// count answers how many tokens a request takes, in the lane that fits. A server of the client's format that lacks the
// path is not asked again: the request is then converted. Neither lane costs anything.
func (e *Endpoints) count(ctx context.Context, x *exchange) error {
	below := cmp.Or(x.address.below(), x.counting)
	return e.choose(ctx, x, false, below, func(r *relay, _ *members) (final bool, err error) {
		r.optional = true
		call := &generate.Call{
			Model: r.model, Origin: x.origin(), MaxWait: e.cfg.MaxRetryWait, Serves: r.serves, Counts: true,
			Beginning: func() []byte { return beginning(r.body.Bytes) },
		}
		call.Config = &modelv1.GenerateConfig{}
		e.bound(call.Config)
		err = r.run(ctx, call, e.deps.Asking)
		if errors.Is(err, errLacksPath) {
			return true, e.instead(ctx, r, e.convertCount)
		}
		return false, err
	}, e.convertCount)
}

// instead converts a request whose path the server lacks.
func (e *Endpoints) instead(ctx context.Context, r *relay, converted func(context.Context, *exchange, *provider.Model, []byte) error) error {
	if err := convertible(r.body.Bytes); err != nil {
		return err
	}
	return converted(ctx, r.exchange, r.model, r.body.Bytes)
}

// choose reads a request and selects the lane: direct if the model's provider speaks the client's format below its
// path, else converted. What direct returns is final, or not, as of lane. Fallbacks may answer for a model that cannot,
// if fall is set. The canonical lane tries those of a converted request itself, unless its model is a fallback.
func (e *Endpoints) choose(
	ctx context.Context, x *exchange, fall bool, below string, direct func(*relay, *members) (final bool, err error),
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
	if query := x.query(); query != "" {
		below += "?" + query
	}
	now := e.deps.Settings.Get()
	model := served(now.Aliases, name)
	left := now.Fallbacks[model]
	if !fall {
		left = nil
	}
	name = model // A name is replaced by its alias once: that of a fallback is the configuration's, not a client's.
	var first error
	for {
		final, err := e.lane(ctx, x, name, b, found, below, len(left) > 0 || x.fallback, direct, converted)
		if first == nil {
			first = err
		}
		unfit := false // The request cannot be converted for a fallback.
		if err != nil {
			x.out.Header().Del(unsentHeader)
			_, unfit = errors.AsType[*dialect.RequestError](err)
			left = e.usable(x, left)
		}
		switch {
		case err == nil:
			return nil
		case final || x.begun || len(left) == 0 || ctx.Err() != nil || !(unfit && x.fallback) && !generate.Curable(err):
			x.out.Header().Del(modelHeader)
			if r, ok := errors.AsType[*refusal](err); ok && r.final {
				return err // To ask again, as the first failure may allow, would be paid for once more.
			}
			return first
		}
		e.deps.Logger.WarnContext(ctx, "a fallback is asked", "model", model, "fallback", left[0], "reason", rpcerr.ReasonName(rpcerr.Reason(err)), "request_id", x.id)
		x.fallback, x.account = true, "" // The account is one of the requested model's provider.
		name, left = left[0], left[1:]
		x.out.Header().Set(modelHeader, name)
	}
}

// usable are the fallbacks of a request from the first one that can be opened.
func (e *Endpoints) usable(x *exchange, fallbacks []string) []string {
	for i, name := range fallbacks {
		if _, err := e.deps.Registry.Open(provider.Ref{Project: x.project, Model: name}); err == nil {
			return fallbacks[i:]
		}
	}
	return nil
}

// lane answers a request with a model. More means that a failure that another model might cure is returned, and not
// answered. Final means that no other model is to be asked.
func (e *Endpoints) lane(
	ctx context.Context, x *exchange, name string, b *buffer.Buffer, found *members, below string, more bool,
	direct func(*relay, *members) (final bool, err error), converted func(context.Context, *exchange, *provider.Model, []byte) error,
) (final bool, err error) {
	m, err := e.open(x, name)
	if err != nil {
		return false, err
	}
	upstream := m.Constant().Upstream(x.about.Name)
	asksHosted := !mayUseHosted(ctx) && x.asksHosted(b.Bytes)
	if upstream == nil || x.address.list || x.request.Header.Get(cacheHeader) != "" || asksHosted {
		if err := convertible(b.Bytes); err != nil {
			return true, err
		}
		return !x.fallback, converted(ctx, x, m, b.Bytes)
	}
	b, found, release, err := x.reopened(b, found, m, upstream)
	if err != nil {
		return true, err
	}
	defer release()
	body := spliced{Buffer: b}
	if found.model.Found() {
		body = splice(b, found.model, x.modelPrefix+upstream.Model)
	}
	return direct(&relay{exchange: x, endpoints: e, model: m, at: m, upstream: upstream, below: below, body: body, more: more}, found)
}

// convertible refuses a body whose canonical form could take too much memory.
func convertible(doc []byte) error {
	if jsonscan.AtMost(doc, bound.RequestValues) {
		return nil
	}
	const why = "the body may have %d JSON values for a model whose provider has another format"
	return refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf(why, bound.RequestValues))
}

// origin identifies on whose behalf a call is made.
func (x *exchange) origin() provider.Origin {
	return provider.Origin{Project: x.project, RequestID: x.id}
}
