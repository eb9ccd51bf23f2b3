package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
)

// ListRunEvents returns a page of a run's events.
func (s *Runs) ListRunEvents(ctx context.Context, r *agentv1.ListRunEventsRequest) (*agentv1.ListRunEventsResponse, error) {
	if _, err := resource.Parse("parent", r.GetParent(), "runs"); err != nil {
		return nil, err
	}
	page, last, err := s.deps.Runs.Events(ctx, r.GetParent(), r.GetAfterSeq(), resource.PageSize(r.GetPageSize()), r.GetContent())
	if err != nil {
		return nil, err
	}
	return &agentv1.ListRunEventsResponse{Events: page, Head: last}, nil
}
