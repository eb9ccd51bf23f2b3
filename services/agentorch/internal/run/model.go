package run

import agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"

// Model finds the model that a step names: none is the run's, else it is a role of the run or `provider/name`. It returns nil where the run names no model.
func (s *State) Model(name string) (ref *agentv1.ModelRef, role string) {
	if name == "" {
		return s.spec.GetModel(), ""
	}
	if ref, ok := s.spec.GetModelRoles()[name]; ok {
		return ref, name
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
