package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/reduce"
)

// ListScorers lists the available scorers.
func (s *Evals) ListScorers(_ context.Context, req *agentv1.ListScorersRequest) (*agentv1.ListScorersResponse, error) {
	if _, err := resource.ParseProject("parent", req.GetParent()); err != nil {
		return nil, err
	}
	resp := &agentv1.ListScorersResponse{}
	for _, d := range s.deps.Judges.Scorers.Definitions() {
		resp.Scorers = append(resp.Scorers, &agentv1.ScorerInfo{Name: d.Name, Description: d.Description, ParametersJson: string(d.Params.Schema()), Metrics: d.Metrics})
	}
	for _, d := range s.deps.Judges.Metrics.Definitions() {
		resp.Metrics = append(resp.Metrics, d.Name)
	}
	for _, d := range reduce.Definitions() {
		resp.Reducers = append(resp.Reducers, d.Name)
	}
	return resp, nil
}
