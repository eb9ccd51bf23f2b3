package plan

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/suggest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// modelCall is a call that a run may make, as far as the call is known before the run starts.
type modelCall struct {
	// field is the field of the specification that causes the call, step the step that does; empty if there is none.
	field, step string
	// described is the field that describes the model, named the field that names it: the same, or one in a step.
	described, named string
	ref              *agentv1.ModelRef
	// roles could be named in place of the model.
	roles []string
	// config is that of the call, all layers merged; layers are by the fields that hold them, the lowest first.
	config *modelv1.GenerateConfig
	layers []layer
	// asker is the name of the step that makes exactly this call; empty if there is none. called is set if a step calls
	// the model, even with options of its own.
	asker  string
	called bool
}

// layer is a configuration and the field that holds it, with the prefix of its option names.
type layer struct {
	field, before string
	config        *modelv1.GenerateConfig
}

// modelCalls returns the calls that a run may make: those of its model, of its roles, and of its steps, whose calls are
// in asks. Equal calls are listed once.
func modelCalls(spec *agentv1.RunSpec, asks [][]agent.Generate) ([]modelCall, error) {
	var calls []modelCall
	roles := slices.Sorted(maps.Keys(spec.GetModelRoles()))
	// add adds a call of a model that is described at a place, with options of the call's own.
	add := func(call modelCall, described string, own layer) {
		active := call.ref == spec.GetModel()
		call.config = chat.ResolveConfig(call.ref.GetConfig(), spec.GetConfig(), own.config, active)
		call.described = described
		if call.named == "" {
			call.named = described + ".model"
		}
		call.layers = []layer{
			{described + ".config", ".", call.ref.GetConfig()},
			{run.FieldConfig, ".", chat.ResolveConfig(nil, spec.GetConfig(), nil, active)},
			own,
		}
		same := slices.IndexFunc(calls, func(c modelCall) bool { return proto.Equal(c.ref, call.ref) && proto.Equal(c.config, call.config) })
		if same < 0 {
			calls = append(calls, call)
			return
		}
		calls[same].asker, calls[same].called = cmp.Or(calls[same].asker, call.asker), calls[same].called || call.called
	}
	if spec.GetModel() != nil {
		add(modelCall{field: run.FieldModel, ref: spec.GetModel()}, run.FieldModel, layer{})
	}
	for _, role := range roles {
		add(modelCall{field: run.FieldOfRole(role), ref: spec.GetModelRoles()[role]}, run.FieldOfRole(role), layer{})
	}
	for i, step := range asks {
		at := run.FieldOfStep(i)
		for _, ask := range step {
			ref, role := run.NamedModel(spec, ask.Model)
			if ref == nil {
				return nil, rpcerr.InvalidField(run.FieldModel, "%s asks the run's model, and the run names none", at)
			}
			for i := range calls {
				calls[i].called = calls[i].called || calls[i].ref == ref
			}
			own := layer{at + ".params_json/config", "/", ask.Config}
			call, described := modelCall{
				field: at + ".params_json/model", step: at, ref: ref, roles: roles, asker: spec.GetSteps()[i].GetName(), called: true,
			}, run.FieldModel
			switch {
			case ask.Model == "":
				call.field = own.field
			case role != "":
				described = run.FieldOfRole(role)
			default:
				call.named = call.field
			}
			add(call, described, own)
		}
	}
	return calls, nil
}

// asksOf returns the model calls that a step may make; told is false if the step does not declare them.
func asksOf(machine agent.Machine) (asks []agent.Generate, told bool) {
	asking, told := machine.(agent.Asking)
	if told {
		asks = asking.Asks()
	}
	return asks, told
}

// fieldOf returns the field that sets an option of the call; empty if there is none.
func (c *modelCall) fieldOf(option string) string {
	for _, l := range slices.Backward(c.layers) {
		m := l.config.ProtoReflect()
		if field := m.Descriptor().Fields().ByName(protoreflect.Name(option)); field != nil && m.Has(field) {
			return l.field + l.before + option
		}
	}
	return ""
}

// placed adds the faulty field of the specification to an error of modelgw: that of an option, that of the model's name
// or description, or else the one that causes the call.
func (c *modelCall) placed(err error) error {
	fault, ok := rpcerr.As(err)
	if !ok {
		return rpcerr.Wrap(err, "%s", c.field)
	}
	if len(fault.Fields) == 0 {
		return rpcerr.In(c.field, err)
	}
	path := fault.Fields[0].Path
	switch option, isOption := strings.CutPrefix(path, "config."); {
	case isOption:
		option, _, _ = strings.Cut(option, ".")
		if field := c.fieldOf(option); field != "" {
			return rpcerr.Moved("config."+option, field, err)
		}
		fallthrough
	case path == "config": // What causes the call causes its configuration.
		whole := *fault
		whole.Fields = nil
		return rpcerr.In(c.field, &whole)
	case path == "model":
		return rpcerr.Moved("model", c.named, err)
	}
	return rpcerr.In(c.described, err)
}

// checkModels checks that the models of a plan have a usable provider and account, and that their calls would be
// accepted. It returns a warning for each option that is not sent to a model, and for each model that is not called.
// Models of a sample's run were checked with its evaluation and are only looked up.
func (c Checker) checkModels(ctx context.Context, p *Plan) ([]*agentv1.EvalWarning, error) {
	calls, err := modelCalls(p.spec, p.asks)
	if err != nil || len(calls) == 0 {
		return nil, err
	}
	answer, err := c.Models.ListProviders(ctx, &modelv1.ListProvidersRequest{})
	if err != nil {
		return nil, rpcerr.Wrap(err, "look up the model's provider")
	}
	var warnings []*agentv1.EvalWarning
	for _, call := range calls {
		if err := checkModel(&call, answer.GetProviders()); err != nil {
			return nil, call.placed(err)
		}
		if p.spec.GetAttribution().GetEval() != "" {
			continue
		}
		unsent, err := c.checkCall(ctx, p.project, &call, costBound(p.spec.GetLimits(), "spec.limits.cost"))
		if err != nil {
			return nil, err
		}
		if call.called {
			warnings = append(warnings, unsent...)
		}
	}
	if p.spec.GetAttribution().GetEval() == "" {
		warnings = append(warnings, ungiven(p.spec.GetConfig(), calls)...)
		warnings = append(warnings, p.uncalled()...)
	}
	return dedupe(warnings), nil
}

// dedupe keeps the first of equal warnings.
func dedupe(warnings []*agentv1.EvalWarning) []*agentv1.EvalWarning {
	said := map[string]bool{}
	return slices.DeleteFunc(warnings, func(w *agentv1.EvalWarning) bool {
		again := said[w.GetMessage()]
		said[w.GetMessage()] = true
		return again
	})
}

// ofTools is the option that bounds tools, whatever model calls them.
const ofTools = "max_tool_output"

// ungiven returns a warning for each option of a run's configuration and each model that a step calls without it. There
// is no warning if a step or a role sets the option itself, as long as some call uses the run's configuration.
func ungiven(config *modelv1.GenerateConfig, calls []modelCall) []*agentv1.EvalWarning {
	var warnings []*agentv1.EvalWarning
	options, fields := config.ProtoReflect(), config.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !options.Has(field) || field.Name() == ofTools {
			continue
		}
		with := func(c modelCall) bool { return c.config.ProtoReflect().Has(field) }
		reaches := slices.ContainsFunc(calls, func(c modelCall) bool {
			return c.asker != "" && with(c) && c.config.ProtoReflect().Get(field).Equal(options.Get(field))
		})
		for _, call := range calls {
			if call.asker == "" || with(call) && reaches {
				continue
			}
			why := fmt.Sprintf(", the model that %s names; config of a model role can set it", call.asker)
			if with(call) {
				why = fmt.Sprintf(": %s calls it with another", call.asker)
			}
			w := &agentv1.EvalWarning{
				Message: fmt.Sprintf("%s of config is not given to %s%s", strings.TrimSuffix(string(field.Name()), "_json"), call.ref.GetModel(), why),
				Model:   call.ref.GetModel(), Field: cmp.Or(call.step, call.field),
			}
			if !reaches {
				w.UnsentOptions, w.Field = []string{string(field.Name())}, run.FieldConfig
			}
			warnings = append(warnings, w)
		}
	}
	return warnings
}

// CheckCost fails with FAILED_PRECONDITION PRICE_UNKNOWN if limits bound dollars and the price of one of a run's models
// is unknown. The specification is the run's pinned one.
func (c Checker) CheckCost(ctx context.Context, project string, spec *agentv1.RunSpec, limits *agentv1.RunLimits) error {
	bound := costBound(limits, "limits.cost")
	if bound == "" {
		return nil
	}
	var asks [][]agent.Generate
	for i, step := range spec.GetSteps() {
		machine, err := c.Agents.New(step)
		if err != nil {
			return rpcerr.In(run.FieldOfStep(i), err)
		}
		calls, _ := asksOf(machine)
		asks = append(asks, calls)
	}
	calls, err := modelCalls(spec, asks)
	if err != nil {
		return err
	}
	for _, call := range calls {
		if _, err := c.checkCall(ctx, project, &call, bound); err != nil {
			return err
		}
	}
	return nil
}

// costBound returns the field if limits bound dollars; empty if they do not.
func costBound(limits *agentv1.RunLimits, field string) string {
	if limits == nil || limits.Cost == nil {
		return ""
	}
	return field
}

// checkCall asks modelgw to validate a call without making it. bound is the field that limits dollars; empty if there
// is none. It returns a warning for each option that is not sent to the provider as it is.
func (c Checker) checkCall(ctx context.Context, project string, call *modelCall, bound string) ([]*agentv1.EvalWarning, error) {
	answer, err := c.validate(ctx, project, call.ref, call.config)
	if err != nil {
		return nil, call.placed(err)
	}
	if bound != "" && answer.GetPrices() == nil {
		return nil, c.priceUnknown(ctx, project, call.ref, bound)
	}
	provider, _, _ := strings.Cut(call.ref.GetModel(), "/")
	for _, name := range answer.GetConfig().GetFallbackModels().GetValues() {
		if bare, ok := strings.CutPrefix(name, provider+"/"); ok {
			return nil, call.placed(rpcerr.InvalidField("config.fallback_models", "write %s, not %s: a fallback model is of the same provider", bare, name))
		}
		fallback := proto.CloneOf(call.ref)
		fallback.Model = provider + "/" + name
		// The options are those of the call, which go to the provider with the first model.
		checked, err := c.validate(ctx, project, fallback, nil)
		if err != nil {
			return nil, rpcerr.Moved("model", call.fieldOf("fallback_models"), err)
		}
		if bound != "" && checked.GetPrices() == nil {
			return nil, c.priceUnknown(ctx, project, fallback, bound)
		}
	}
	return call.warnings(answer), nil
}

// warnings are those of a validated call: one for each option that is not sent to the provider, or with another value.
func (c *modelCall) warnings(answer *modelv1.GenerateResponse) []*agentv1.EvalWarning {
	var all []*agentv1.EvalWarning
	for _, option := range answer.GetUnsentOptions() {
		all = append(all, &agentv1.EvalWarning{Message: option + " is not sent to " + c.ref.GetModel(), UnsentOptions: []string{option}})
	}
	for _, change := range answer.GetChangedOptions() {
		message := fmt.Sprintf("%s %s is sent to %s as %s", change.GetOption(), change.GetAsked(), c.ref.GetModel(), change.GetSent())
		all = append(all, &agentv1.EvalWarning{Message: message, ChangedOptions: []*modelv1.ChangedOption{change}})
	}
	for i, w := range all {
		w.Model, w.Field = c.ref.GetModel(), c.step
		if texts := answer.GetWarnings(); i < len(texts) { // A modelgw of another version may have fewer.
			w.Message = texts[i]
		}
	}
	return all
}

// priceUnknown is the error for a model without a known price where the field bound limits dollars. A model that has
// one without its options is asked for in a mode, such as a service tier.
func (c Checker) priceUnknown(ctx context.Context, project string, ref *agentv1.ModelRef, bound string) error {
	plain, how := proto.CloneOf(ref), ""
	plain.ModelArgsJson = ""
	if answer, err := c.validate(ctx, project, plain, nil); err == nil && answer.GetPrices() != nil {
		how = "in the mode that its options ask for"
	}
	err := rpcerr.PriceUnknown(ref.GetModel(), how, bound)
	return err.WithField(bound, "%s", err.Message)
}

// validate is a call of modelgw that only checks.
func (c Checker) validate(ctx context.Context, project string, ref *agentv1.ModelRef, config *modelv1.GenerateConfig) (*modelv1.GenerateResponse, error) {
	return c.Models.Generate(ctx, &modelv1.GenerateRequest{
		Parent: resource.Project(project), Model: ref.GetModel(), Account: ref.GetAccount(), BaseUrl: ref.GetBaseUrl(),
		ModelArgsJson: ref.GetModelArgsJson(), Config: config, ValidateOnly: true,
	})
}

func checkModel(call *modelCall, providers []*modelv1.Provider) error {
	ref := call.ref
	name, model, ok := strings.Cut(ref.GetModel(), "/")
	if !ok || model == "" {
		or := ""
		if len(call.roles) > 0 {
			or = ", or a role of the run: " + strings.Join(call.roles, ", ")
		}
		return rpcerr.InvalidField("model", "%q is no model; write provider/name, such as mockllm/model%s", ref.GetModel(), or)
	}
	var known []string
	for _, p := range providers {
		known = append(known, p.GetName())
		if p.GetName() == name {
			return checkAccount(ref, p)
		}
	}
	return rpcerr.ModelNotFound(ref.GetModel(), known,
		"no provider %q for the model %s; %sknown are %s", name, ref.GetModel(), suggest.Question(name, known), strings.Join(known, ", "))
}

// defaultAccount is the account of references without one.
const defaultAccount = "default"

func checkAccount(ref *agentv1.ModelRef, p *modelv1.Provider) error {
	account := cmp.Or(ref.GetAccount(), defaultAccount)
	if p.GetAccountInModel() {
		named, model, _ := strings.Cut(strings.TrimPrefix(ref.GetModel(), p.GetName()+"/"), "/")
		switch {
		case model == "":
			return rpcerr.InvalidField("model", "%q names no account; write %s/account/name", ref.GetModel(), p.GetName())
		case account != defaultAccount:
			return rpcerr.InvalidField("account", "the model %s names its account, %s; leave %q out", ref.GetModel(), named, account)
		}
		account = named
	}
	notConfigured := func(format string, args ...any) error {
		field := "model"
		if ref.GetAccount() != "" {
			field = "account"
		}
		return rpcerr.In(field, rpcerr.ProviderNotConfigured(p.GetName(), account, format, args...))
	}
	service, at := serviceOf(ref, p), p.GetName()
	if service != "" {
		at += "/" + service
	}
	var known []string
	for _, a := range p.GetAccounts() {
		if a.GetService() != service {
			continue
		}
		known = append(known, a.GetName())
		if a.GetName() != account {
			continue
		}
		if !a.GetUsable() {
			return notConfigured("the account %s of %s cannot be used: %s", account, at, a.GetProblem())
		}
		return nil
	}
	if ref.GetAccount() != "" && len(known) > 0 {
		return rpcerr.InvalidField("account", "%s has no account %q; %sconfigured are: %s", at, account, suggest.Question(account, known), strings.Join(known, ", "))
	}
	configured := "none is configured"
	if len(known) > 0 {
		configured = "configured are: " + strings.Join(known, ", ")
	}
	return notConfigured("%s has no account %q; %s", at, account, configured)
}

// serviceOf returns the cloud that serves a model, as its name has it; empty if that is the provider itself.
func serviceOf(ref *agentv1.ModelRef, p *modelv1.Provider) string {
	service, _, _ := strings.Cut(strings.TrimPrefix(ref.GetModel(), p.GetName()+"/"), "/")
	if slices.ContainsFunc(p.GetAccounts(), func(a *modelv1.Account) bool { return a.GetService() == service }) {
		return service
	}
	return ""
}
