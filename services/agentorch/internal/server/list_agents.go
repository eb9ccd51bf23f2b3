package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
)

// ListAgents lists agents and solvers with the schemas of their parameters.
func (s *Runs) ListAgents(_ context.Context, r *agentv1.ListAgentsRequest) (*agentv1.ListAgentsResponse, error) {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	page, err := resource.PageOf(r)
	if err != nil {
		return nil, err
	}
	answer := &agentv1.ListAgentsResponse{}
	for _, d := range s.deps.Runs.Agents.Definitions() {
		if d.Name <= page.After {
			continue
		}
		if len(answer.GetAgents()) == page.Size {
			answer.NextPageToken = page.Token(resource.LastID(answer.GetAgents()[page.Size-1].GetName()))
			break
		}
		answer.Agents = append(answer.Agents, &agentv1.Agent{
			Name: resource.Format(project, "agents", d.Name), DisplayName: d.Name, Description: d.Description, ParametersJson: d.Parameters, Builtin: true,
		})
	}
	return answer, nil
}
