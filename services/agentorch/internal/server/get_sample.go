package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// GetSample returns a sample.
func (s *Evals) GetSample(ctx context.Context, req *agentv1.GetSampleRequest) (*agentv1.EvalSample, error) {
	name, err := resource.Parse("name", req.GetName(), "evals", "samples")
	if err != nil {
		return nil, err
	}
	samples, err := s.deps.Live.Samples(ctx, resource.Format(name.Project, "evals", name.IDs[0]))
	if err != nil {
		return nil, err
	}
	sample := samples.Find(name.IDs[1])
	if sample == nil {
		return nil, rpcerr.ResourceNotFound(req.GetName())
	}
	if !req.GetContent() {
		sample = redact.Content(sample)
	}
	return sample, nil
}
