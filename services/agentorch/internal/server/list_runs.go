package server

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// ListRuns lists runs, newest first. Counts of a run at work may be a second old; states never are.
func (s *Runs) ListRuns(ctx context.Context, r *agentv1.ListRunsRequest) (*agentv1.ListRunsResponse, error) {
	project, err := resource.Project("parent", r.GetParent())
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
		Project: project, Kind: journal.KindRun, Parent: r.GetEval(), Labels: r.GetLabels(), WaitReason: r.GetWaitingFor(), Before: journal.Ref(before), Limit: page.Size + 1,
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
		one, err := s.listed(ctx, row)
		if err != nil {
			return nil, err
		}
		answer.Runs = append(answer.Runs, s.live(one, row.Done))
	}
	return answer, nil
}

// listed is a run as its row shows it, and its journal where the row cannot be read. Of a run whose journal cannot be read
// either it has the name and the state.
func (s *Runs) listed(ctx context.Context, row journal.Listed) (*agentv1.Run, error) {
	one := &agentv1.Run{}
	if err := proto.Unmarshal(row.View, one); err != nil {
		s.deps.Logger.Error("the row of a run cannot be read; its journal is read instead", "run", row.Name, "error", err)
		state, err := s.fold(ctx, row.Head)
		switch {
		case err == nil:
			one = state.View(false)
		case errors.Is(err, journal.ErrUnreadable) || rpcerr.Code(err) == codes.NotFound: // Deleted meanwhile.
			one = &agentv1.Run{Name: row.Name, State: agentv1.RunState(row.State)}
		default:
			return nil, err
		}
	}
	one.Head, one.Epoch, one.Owner, one.Etag = row.Seq, row.Epoch, row.Owner, run.Etag(row.Seq)
	return one, nil
}
