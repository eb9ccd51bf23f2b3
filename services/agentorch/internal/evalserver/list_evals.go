package evalserver

import (
	"context"
	"strconv"

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
	position, err := resource.Position(req.GetPageToken(), req)
	if err != nil {
		return nil, err
	}
	size := resource.PageSize(req.GetPageSize())
	q := journal.Query{Project: project, Kind: journal.KindEval, Limit: size + 1}
	if position != "" {
		before, err := strconv.ParseInt(position, 10, 64)
		if err != nil {
			return nil, rpcerr.InvalidField("page_token", "it cannot be read; begin again without it")
		}
		q.Before = journal.Ref(before)
	}
	for _, state := range req.GetStates() {
		q.States = append(q.States, int32(state))
	}
	rows, err := s.journals.List(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &agentv1.ListEvalsResponse{}
	if len(rows) > size {
		rows = rows[:size]
		resp.NextPageToken = resource.PageToken(strconv.FormatInt(int64(rows[size-1].Ref), 10), req)
	}
	for _, row := range rows {
		e := &agentv1.Eval{}
		if err := proto.Unmarshal(row.View, e); err != nil {
			return nil, err
		}
		resp.Evals = append(resp.Evals, e)
	}
	return resp, nil
}
