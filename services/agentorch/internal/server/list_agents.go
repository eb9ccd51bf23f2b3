package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
)

// ListAgents lists agents and solvers with the schemas of their parameters.
func (s *Runs) ListAgents(_ context.Context, r *agentv1.ListAgentsRequest) (*agentv1.ListAgentsResponse, error) {
	project, err := resource.Project("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	after, err := resource.Position(r.GetPageToken(), r)
	if err != nil {
		return nil, err
	}
	answer := &agentv1.ListAgentsResponse{}
	size := resource.PageSize(r.GetPageSize())
	for _, d := range s.deps.Agents.Definitions() {
		if d.Name <= after {
			continue
		}
		if len(answer.GetAgents()) == size {
			answer.NextPageToken = resource.PageToken(resource.LastID(answer.GetAgents()[size-1].GetName()), r)
			break
		}
		answer.Agents = append(answer.Agents, &agentv1.Agent{
			Name: resource.Format(project, "agents", d.Name), DisplayName: d.Name, Description: d.Description, ParametersJson: d.Parameters, Builtin: true,
		})
	}
	return answer, nil
}
