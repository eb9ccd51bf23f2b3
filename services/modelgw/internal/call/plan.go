package call

import (
	"context"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/effect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prefixcache"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/respcache"
)

// validate fails as the call would if that is known without making it, and returns how the call would be made.
func (c *Calls) validate(ctx context.Context, w *work) (*modelv1.GenerateResponse, error) {
	call := &w.call
	prices := c.deps.Settings.Prices()
	if err := c.deps.Registry.Check(ctx, w.ref); err != nil {
		return nil, err
	}
	if err := call.Model.Check(call.Config); err != nil {
		return nil, err
	}
	if err := generate.Affordable(c.deps.Budgets, prices, call); err != nil {
		return nil, err
	}
	return &modelv1.GenerateResponse{
		Config: call.Config, UnsentOptions: w.unsentOptions(), ChangedOptions: w.changed, Warnings: w.warnings(), Prices: prices.Asked(call),
		Model: call.Model.FullName(),
	}, nil
}

// work is a requested call, ready to be made.
type work struct {
	request *modelv1.GenerateRequest
	// asked is the request's conversation, with its prefix, if something must identify it.
	asked prefixcache.Conversation
	key   effect.Key
	// ref is what the call is made of, which is the request's or a fallback's.
	ref  provider.Ref
	call generate.Call
	// fallbacks may answer if the call's model cannot. missing is why the call is not the requested model's already;
	// nil if it is.
	fallbacks []string
	missing   error
	// unsent are options of the request that the provider is not sent; the call's configuration is without them.
	unsent []provider.Unsent
	// changed are options of the request that the provider is sent with other values, as the call's configuration has
	// them.
	changed []*modelv1.ChangedOption
}

// unsentOptions names the options that are not sent to the provider.
func (w *work) unsentOptions() []string {
	var all []string
	for _, u := range w.unsent {
		all = append(all, u.Option)
	}
	return all
}

// warnings describes the options that are not sent to the provider, or not as they were asked for, for people.
func (w *work) warnings() []string {
	var all []string
	for _, u := range w.unsent {
		all = append(all, fmt.Sprintf("%s is not sent to %s, %s", u.Option, w.call.Model.FullName(), u.Why))
	}
	for _, change := range w.changed {
		all = append(all, fmt.Sprintf("%s %s is sent to %s as %s", change.GetOption(), change.GetAsked(), w.call.Model.FullName(), change.GetSent()))
	}
	return append(all, unpriced(w)...)
}

// plan validates a request and prepares its call. A failure here has no effect and is not stored under a key.
func (c *Calls) plan(r *modelv1.GenerateRequest) (*work, error) { return c.planWith(r, false) }

// planWith is plan. client means that a client of an endpoint asks, as in [prepare.Conversation].
func (c *Calls) planWith(r *modelv1.GenerateRequest, client bool) (*work, error) {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	if r.GetRaw() != nil {
		return nil, rpcerr.NotBuiltField("raw", "generating from a request in a vendor's form")
	}
	if err := checkConfig(r.GetConfig()); err != nil {
		return nil, err
	}
	ref := provider.Ref{Project: project, Model: r.GetModel(), Account: r.GetAccount(), BaseURL: r.GetBaseUrl(), Args: r.GetModelArgsJson()}
	fallbacks := c.fallbacks(r)
	model, missing := c.deps.Registry.Open(ref)
	if missing != nil && (len(fallbacks) == 0 || !generate.Curable(missing)) {
		return nil, missing
	}
	var asked prefixcache.Conversation
	if r.GetPrefix() != nil || r.GetRequestId() != "" || r.GetKeep() {
		if asked, err = c.conversation(project, r.GetPrefix(), r.GetMessages()); err != nil {
			return nil, err
		}
	}
	w, err := c.planned(r, asked, ref, model, missing, fallbacks, client)
	if err != nil {
		return nil, err
	}
	if r.GetRequestId() != "" {
		w.key = effect.Key{Project: project, ID: r.GetRequestId()}
	}
	return w, c.board(w)
}

// checkConfig fails with INVALID_REQUEST for a configuration that no model's call can have.
func checkConfig(c *modelv1.GenerateConfig) error {
	if err := chat.CheckConfig(c); err != nil {
		return err
	}
	if _, err := chat.Adaptive(c); err != nil {
		return rpcerr.InvalidField("config", "%v", err)
	}
	if c.GetCache().GetEnabled() {
		if _, _, err := respcache.Lifetime(c.GetCache().GetPolicy()); err != nil {
			return rpcerr.InvalidField("config.cache", "%v", err)
		}
	}
	return nil
}

// prepared prepares the call of a request for a model. Asked is its conversation if something must identify it. Left is
// the number of models that may answer after this one; client is as in planWith.
func (c *Calls) prepared(r *modelv1.GenerateRequest, asked prefixcache.Conversation, ref provider.Ref, model *provider.Model, left int, client bool) (*work, error) {
	given := prepare.Conversation{Messages: r.GetMessages(), Tools: r.GetTools(), Choice: r.GetToolChoice(), Config: r.GetConfig(), Client: client}
	if r.GetPrefix() != nil || r.GetRequestId() != "" || r.GetKeep() {
		given.Messages, given.Given = asked.Messages(), asked.Content
		given.Summary, given.Count = new(asked.Summary()), new(asked.TokenCount())
	}
	var withheld []provider.Unsent
	if kind, _, _ := strings.Cut(r.GetModel(), "/"); kind != model.Kind.Name {
		given.Config, withheld = ofAnother(chat.Merge(given.Config))
	}
	if client && model.FullName() != r.GetModel() { // An endpoint has chosen the effort for the requested model.
		var unsent []provider.Unsent
		given.Config, unsent = leastEffort(given.Config, model.CapabilitiesOf(given.Config))
		withheld = append(withheld, unsent...)
	}
	caps := model.CapabilitiesOf(given.Config)
	conversation, err := prepare.Prepare(given, caps)
	if err != nil {
		return nil, err
	}
	fitted := provider.FitTo(model.Provider, caps, conversation.Config)
	conversation.Config = fitted.Sent
	w := &work{request: r, asked: asked, ref: ref, unsent: append(withheld, fitted.Unsent...), changed: fitted.Changed, call: generate.Call{
		Model: model, Args: ref.Args, Conversation: conversation, Sealer: caps.Sealer,
		InputWindow: c.deps.Settings.Get().Data.InputWindow(model.FullName()),
		Origin:      provider.Origin{Project: ref.Project, RequestID: r.GetRequestId(), Attribution: r.GetAttribution()},
		Record:      recordOf(r),
	}}
	if left > 0 {
		w.call.Patience = generate.PatienceBefore
	}
	if eval := r.GetAttribution().GetEval(); eval != "" {
		w.call.Scopes = []string{eval}
	}
	return w, nil
}

// recordOf returns the attempts whose record a request wants.
func recordOf(r *modelv1.GenerateRequest) provider.Record {
	switch {
	case r.GetRecordCall():
		return provider.RecordAll
	case r.GetRecordFailedCall():
		return provider.RecordFailures
	default:
		return provider.RecordNone
	}
}
