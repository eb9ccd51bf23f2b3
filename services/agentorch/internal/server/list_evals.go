package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// ListEvals lists evaluations, newest first.
func (s *Evals) ListEvals(ctx context.Context, req *agentv1.ListEvalsRequest) (*agentv1.ListEvalsResponse, error) {
	project, err := resource.ParseProject("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	page, err := resource.PageOf(req)
	if err != nil {
		return nil, err
	}
	before, err := page.AfterNumber()
	if err != nil {
		return nil, err
	}
	q := journal.Query{Project: project, Kind: journal.KindEval, Before: journal.Ref(before), Limit: page.Size + 1, Bytes: journal.PageBytes}
	for _, state := range req.GetStates() {
		q.States = append(q.States, int32(state))
	}
	rows, err := s.deps.Journals.List(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &agentv1.ListEvalsResponse{}
	page.Size = journal.Fitting(rows, page.Size)
	rows, resp.NextPageToken = resource.Cut(page, rows, journal.Listed.Position)
	if resp.Evals, err = s.deps.Live.Listed(ctx, project, rows); err != nil {
		return nil, err
	}
	return redact.Content(resp), nil
}
