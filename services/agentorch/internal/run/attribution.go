package run

import (
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

// Attribution says on whose behalf an effect of the run happens.
func (s *State) Attribution(purpose, role string, turn int) *effectv1.Attribution {
	of := s.spec.GetAttribution()
	at := &effectv1.Attribution{
		Eval: of.GetEval(), Sample: of.GetSample(), Epoch: of.GetEpoch(), Run: s.Name, Turn: int32(turn), Role: role, Purpose: purpose,
		OwnerEpoch: s.OwnerEpoch,
	}
	if steps := s.spec.GetSteps(); s.Step >= 0 && s.Step < len(steps) {
		at.Agent = agent.DisplayName(steps[s.Step])
	}
	return at
}
