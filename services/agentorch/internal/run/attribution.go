package run

import (
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
)

// Attribution names the run, the agent and the purpose of an effect.
func (f *Frame) Attribution(purpose, role string, turn int) *effectv1.Attribution {
	of := f.run.spec.GetAttribution()
	return &effectv1.Attribution{
		Eval: of.GetEval(), Sample: of.GetSample(), Epoch: of.GetEpoch(), Run: f.run.Name, Turn: int32(turn), Role: role, Purpose: purpose, Agent: f.Name(),
		OwnerEpoch: f.run.OwnerEpoch,
	}
}
