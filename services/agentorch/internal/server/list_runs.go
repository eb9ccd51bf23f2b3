package server

import (
	"context"
	"fmt"
	"strconv"

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
	before, err := positionOf(r.GetPageToken(), r)
	if err != nil {
		return nil, err
	}
	size := resource.PageSize(r.GetPageSize())
	q := journal.Query{
		Project: project, Kind: journal.KindRun, Parent: r.GetEval(), Labels: r.GetLabels(), WaitReason: r.GetWaitingFor(), Before: before, Limit: size + 1,
	}
	for _, state := range r.GetStates() {
		q.States = append(q.States, int32(state))
	}
	rows, err := s.deps.Store.List(ctx, q)
	if err != nil {
		return nil, err
	}
	answer := &agentv1.ListRunsResponse{}
	if len(rows) > size {
		rows = rows[:size]
		answer.NextPageToken = resource.PageToken(strconv.FormatInt(int64(rows[size-1].Ref), 10), r)
	}
	for _, row := range rows {
		one, err := listed(row)
		if err != nil {
			return nil, err
		}
		answer.Runs = append(answer.Runs, one)
	}
	return answer, nil
}

// listed is a run as its row shows it.
func listed(row journal.Listed) (*agentv1.Run, error) {
	one := &agentv1.Run{}
	if err := proto.Unmarshal(row.View, one); err != nil {
		return nil, fmt.Errorf("read the row of %s: %w", row.Name, err)
	}
	one.Head, one.Epoch, one.Owner, one.Etag = row.Seq, row.Epoch, row.Owner, run.Etag(row.Seq)
	return one, nil
}

// positionOf reads a page token whose position is a journal's ref.
func positionOf(token string, request proto.Message) (journal.Ref, error) {
	position, err := resource.Position(token, request)
	if err != nil || position == "" {
		return 0, err
	}
	ref, err := strconv.ParseInt(position, 10, 64)
	if err != nil {
		return 0, rpcerr.InvalidCursor("page_token", "page_token cannot be read; begin again without it")
	}
	return journal.Ref(ref), nil
}
