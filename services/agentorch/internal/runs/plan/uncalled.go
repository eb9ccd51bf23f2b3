package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// uncalled returns a warning for the run's model if no step calls it, and for each role that no step names. It returns
// none if another party may call them: a step that does not declare its calls, or a worker, which receives the run's
// name and so its models.
func (p *Plan) uncalled() []*agentv1.EvalWarning {
	if p.closed || p.asksWorkers() {
		return nil
	}
	spec, own := p.spec, p.spec.GetModel()
	var callers []string
	named := map[string]bool{}
	// called reports whether the run's model is called as such, byName whether as a role or by its name, sameArgs
	// whether that is with its arguments.
	called, byName, sameArgs := own == nil, false, false
	for i, step := range p.asks {
		for _, ask := range step {
			ref, role := run.NamedModel(spec, ask.Model)
			named[role], called = true, called || ref == own
			if mayCall(ref, chat.ResolveConfig(ref.GetConfig(), spec.GetConfig(), ask.Config, ref == own), own.GetModel()) {
				byName, sameArgs = true, sameArgs || ref.GetModelArgsJson() == own.GetModelArgsJson()
			}
			caller := spec.GetSteps()[i].GetName() + " names " + ref.GetModel()
			if role != "" {
				caller = spec.GetSteps()[i].GetName() + " names the role " + role
			}
			if !slices.Contains(callers, caller) {
				callers = append(callers, caller)
			}
		}
	}
	if len(callers) == 0 {
		return nil
	}
	var warnings []*agentv1.EvalWarning
	warn := func(ref *agentv1.ModelRef, field, says string) {
		warnings = append(warnings, &agentv1.EvalWarning{Message: says, Model: ref.GetModel(), UnsentOptions: optionsOf(ref.GetConfig()), Field: field})
	}
	lost, instead := unused(own, !sameArgs), ": "+strings.Join(callers, ", ")
	switch {
	case called || byName && lost == "":
	case byName:
		warn(own, run.FieldModel, own.GetModel()+"'s own "+lost+instead)
	default:
		warn(own, run.FieldModel, "the model "+own.GetModel()+" is never called"+and(lost)+instead)
	}
	for _, role := range slices.Sorted(maps.Keys(spec.GetModelRoles())) {
		if ref := spec.GetModelRoles()[role]; !named[role] {
			warn(ref, run.FieldOfRole(role), "the role "+role+" ("+ref.GetModel()+") is never called"+and(unused(ref, true))+": no solver names it")
		}
	}
	return warnings
}

// asksWorkers reports whether workers serve something of the run.
func (p *Plan) asksWorkers() bool {
	return slices.ContainsFunc(p.spec.GetScorers(), func(s *agentv1.ScorerRef) bool { return s.GetWorker() != nil }) ||
		slices.ContainsFunc(p.spec.GetSteps(), func(s *agentv1.AgentRef) bool { return len(s.GetWorkers()) > 0 }) ||
		slices.ContainsFunc(p.tools, func(d *toolv1.ToolDefinition) bool { return d.GetWorker() != "" })
}

// mayCall reports whether a call may reach the model of a name, including as a fallback.
func mayCall(ref *agentv1.ModelRef, config *modelv1.GenerateConfig, name string) bool {
	provider, _, _ := strings.Cut(ref.GetModel(), "/")
	return ref.GetModel() == name || slices.ContainsFunc(config.GetFallbackModels().GetValues(), func(fallback string) bool { return provider+"/"+fallback == name })
}

// unused returns the part of a model reference that has no effect; empty if there is none.
func unused(ref *agentv1.ModelRef, args bool) string {
	args = args && ref.GetModelArgsJson() != ""
	var options []string
	for _, option := range optionsOf(ref.GetConfig()) {
		options = append(options, strings.TrimSuffix(option, "_json"))
	}
	config := "config (" + strings.Join(options, ", ") + ")"
	switch {
	case len(options) > 0 && args:
		return config + " and args are not used"
	case len(options) > 0:
		return config + " is not used"
	case args:
		return "args are not used"
	}
	return ""
}

func and(unused string) string {
	if unused == "" {
		return ""
	}
	return ", and its " + unused
}

// optionsOf returns the names of the options for calls that a configuration sets.
func optionsOf(config *modelv1.GenerateConfig) []string {
	var set []string
	options, fields := config.ProtoReflect(), config.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); options.Has(field) && field.Name() != ofTools {
			set = append(set, string(field.Name()))
		}
	}
	return set
}
