package evalserver

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// ListEvals lists evaluations, newest first.
func (s *Server) ListEvals(ctx context.Context, req *agentv1.ListEvalsRequest) (*agentv1.ListEvalsResponse, error) {
	project, err := resource.Project("parent", req.GetParent())
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
	rows, err := s.journals.List(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &agentv1.ListEvalsResponse{}
	page.Size = journal.Fitting(rows, page.Size)
	rows, resp.NextPageToken = resource.Cut(page, rows, journal.Listed.Position)
	for _, row := range rows {
		e, err := s.listed(ctx, row)
		if err != nil {
			return nil, err
		}
		resp.Evals = append(resp.Evals, e)
	}
	if !slices.ContainsFunc(resp.GetEvals(), func(e *agentv1.Eval) bool { return !ended(e) }) {
		return resp, nil
	}
	runs, err := s.running(ctx, journal.Query{Project: project})
	if err != nil {
		return nil, err
	}
	for i, e := range resp.GetEvals() {
		if resp.Evals[i], err = s.live(ctx, e, runs[e.GetName()]); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// listed is an evaluation as its row shows it, and its journal where the row cannot be read. Of an evaluation whose
// journal cannot be read either it has the name and the state.
func (s *Server) listed(ctx context.Context, row journal.Listed) (*agentv1.Eval, error) {
	e := &agentv1.Eval{}
	if proto.Unmarshal(row.View, e) == nil {
		return e, nil
	}
	state, err := s.engine.State(ctx, row.Name)
	switch {
	case err == nil:
		return state.Eval, nil
	case errors.Is(err, journal.ErrUnreadable) || rpcerr.Code(err) == codes.NotFound: // Deleted meanwhile.
		return &agentv1.Eval{Name: row.Name, State: agentv1.EvalState(row.State), Progress: &agentv1.EvalProgress{}}, nil
	}
	return nil, err
}
