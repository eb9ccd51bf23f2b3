package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/content"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// ListRunEvents gives a page of a run's events.
func (s *Runs) ListRunEvents(ctx context.Context, r *agentv1.ListRunEventsRequest) (*agentv1.ListRunEventsResponse, error) {
	head, err := s.head(ctx, "run", r.GetRun())
	if err != nil {
		return nil, err
	}
	page, err := s.deps.Store.Read(ctx, head.Ref, journal.Range{After: r.GetAfterSeq(), Limit: resource.PageSize(r.GetPageSize()), Bare: !r.GetContent()})
	if err != nil {
		return nil, journal.Gone(err, head.Name)
	}
	for _, e := range page {
		if !r.GetContent() {
			content.Strip(e)
		}
	}
	return &agentv1.ListRunEventsResponse{Events: page, Head: head.Seq}, nil
}
