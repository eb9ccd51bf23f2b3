package server

import (
	"context"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// ListRuns lists runs, newest first. Counts of an active run may be a second old; states are always current.
func (s *Runs) ListRuns(ctx context.Context, r *agentv1.ListRunsRequest) (*agentv1.ListRunsResponse, error) {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	if r.GetEval() != "" {
		if _, err := resource.Parse("eval", r.GetEval(), "evals"); err != nil {
			return nil, err
		}
	}
	page, err := resource.PageOf(r)
	if err != nil {
		return nil, err
	}
	before, err := page.AfterNumber()
	if err != nil {
		return nil, err
	}
	q := journal.Query{
		Project: project, Kind: journal.KindRun, Parent: r.GetEval(), Labels: r.GetLabels(), WaitReason: enum.Word(r.GetWaitingFor()), Before: journal.Ref(before), Limit: page.Size + 1,
		Bytes: journal.PageBytes,
	}
	for _, state := range r.GetStates() {
		q.States = append(q.States, int32(state))
	}
	rows, err := s.deps.Store.List(ctx, q)
	if err != nil {
		return nil, err
	}
	answer := &agentv1.ListRunsResponse{}
	page.Size = journal.Fitting(rows, page.Size)
	rows, answer.NextPageToken = resource.Cut(page, rows, journal.Listed.Position)
	for _, row := range rows {
		one, err := s.deps.Runs.Listed(ctx, row)
		if err != nil {
			return nil, err
		}
		answer.Runs = append(answer.Runs, one)
	}
	return answer, nil
}
