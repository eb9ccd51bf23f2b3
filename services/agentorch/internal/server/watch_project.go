package server

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/watch"
)

// WatchProject streams which runs and evaluations of a project change.
func (s *Runs) WatchProject(r *agentv1.WatchProjectRequest, stream grpc.ServerStreamingServer[agentv1.WatchProjectResponse]) error {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return err
	}
	ctx := stream.Context()
	return watch.FollowProject(ctx, s.deps.Store, watch.Project{
		ID: project, Roots: r.GetWithoutSamples(), Cursor: r.GetCursor(), FromHead: r.GetFromHead(), Of: &agentv1.WatchProjectRequest{Parent: r.GetParent()},
		Emit: func(rows []journal.Listed, last journal.Change, cursor func(journal.Change) string) error {
			if len(rows) == 0 {
				return stream.Send(&agentv1.WatchProjectResponse{Cursor: cursor(last)})
			}
			evals, err := s.evals(ctx, project, rows)
			if err != nil {
				return err
			}
			for _, row := range rows {
				update := &agentv1.WatchProjectResponse{Cursor: cursor(row.Change)}
				if eval, ok := evals[row.Name]; ok {
					update.Update = &agentv1.WatchProjectResponse_Eval{Eval: redact.Content(eval)}
				} else {
					run, err := s.deps.Runs.Listed(ctx, row)
					if err != nil {
						return err
					}
					update.Update = &agentv1.WatchProjectResponse_Run{Run: run}
				}
				if err := stream.Send(update); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// evals are the evaluations among the rows, by name.
func (s *Runs) evals(ctx context.Context, project string, rows []journal.Listed) (map[string]*agentv1.Eval, error) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(l journal.Listed) bool { return l.Kind != journal.KindEval })
	if len(rows) == 0 {
		return nil, nil
	}
	listed, err := s.deps.Evals(ctx, project, rows)
	evals := make(map[string]*agentv1.Eval, len(listed))
	for i, eval := range listed {
		evals[rows[i].Name] = eval
	}
	return evals, err
}
