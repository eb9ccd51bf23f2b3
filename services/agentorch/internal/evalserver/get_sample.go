package evalserver

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
)

// GetSample gives one sample.
func (s *Server) GetSample(ctx context.Context, req *agentv1.GetSampleRequest) (*agentv1.EvalSample, error) {
	name, err := resource.Parse("name", req.GetName(), "evals", "samples")
	if err != nil {
		return nil, err
	}
	state, samples, err := s.load(ctx, resource.Format(name.Project, "evals", name.IDs[0]))
	if err != nil {
		return nil, err
	}
	slot := state.Find(name.IDs[1])
	if slot == nil {
		return nil, rpcerr.ResourceNotFound(req.GetName())
	}
	r := state.Resource(slot, samples.At(slot.Sample))
	atWork, err := s.atWorkByRun(ctx, state)
	if err != nil {
		return nil, err
	}
	return shown(r, atWork), nil
}

func (s *Server) load(ctx context.Context, name string) (*eval.State, *eval.Samples, error) {
	state, err := s.engine.State(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	samples, err := s.engine.Samples(ctx, state)
	return state, samples, err
}
