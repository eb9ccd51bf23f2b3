package run

import agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"

// Model is [NamedModel] for the run's steps.
func (s *State) Model(name string) (ref *agentv1.ModelRef, role string) {
	return NamedModel(s.spec, name)
}

// NamedModel returns the model that a step of a run names. An empty name means the run's model; other names are a role
// of the run or `provider/name`. It returns nil if the run names no model. A model with the name of the run's model
// gets its account and its arguments, but none of its configuration.
func NamedModel(spec *agentv1.RunSpec, name string) (ref *agentv1.ModelRef, role string) {
	own := spec.GetModel()
	if name == "" {
		return own, ""
	}
	if ref, ok := spec.GetModelRoles()[name]; ok {
		return ref, name
	}
	if name == own.GetModel() {
		return &agentv1.ModelRef{Model: name, Account: own.GetAccount(), BaseUrl: own.GetBaseUrl(), ModelArgsJson: own.GetModelArgsJson()}, ""
	}
	return &agentv1.ModelRef{Model: name}, ""
}

// ModelOf returns the reference that a model intent was made from.
func (s *State) ModelOf(i *agentv1.ModelIntent) *agentv1.ModelRef {
	if i.GetRole() != "" {
		return s.spec.GetModelRoles()[i.GetRole()]
	}
	if i.GetModel() == s.spec.GetModel().GetModel() {
		return s.spec.GetModel()
	}
	return &agentv1.ModelRef{Model: i.GetModel()}
}
