package server

import (
	"google.golang.org/grpc"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/watch"
)

// WatchRun streams a run's events, and the progress of its open effects, until the run has ended.
func (s *Runs) WatchRun(r *agentv1.WatchRunRequest, stream grpc.ServerStreamingServer[agentv1.WatchRunResponse]) error {
	if _, err := resource.Parse("name", r.GetName(), "runs"); err != nil {
		return err
	}
	if r.GetDeltas() {
		return rpcerr.NotBuiltField("deltas", "watching pieces of answers")
	}
	notes := s.deps.Notes.Watch(progress.OfRun(r.GetName()))
	defer notes.Close()
	return watch.Follow(stream.Context(), s.deps.Store, watch.Watch{
		Journal: r.GetName(), Cursor: r.GetCursor(), FromHead: r.GetFromHead(), Of: &agentv1.WatchRunRequest{Name: r.GetName()}, Content: r.GetContent(), More: notes.C,
		Ended: func(e *agentv1.Event) bool { return e.GetRunFinished() != nil },
		Emit: func(e *agentv1.Event, cursor string) error {
			r := &agentv1.WatchRunResponse{Cursor: cursor}
			if e != nil {
				r.Update = &agentv1.WatchRunResponse_Event{Event: e}
			}
			return stream.Send(r)
		},
		Idle: func(cursor string, ended bool) error { // After the events, which have the intents.
			if ended {
				return nil
			}
			for _, news := range notes.Next() {
				if err := stream.Send(&agentv1.WatchRunResponse{Cursor: cursor, Update: &agentv1.WatchRunResponse_Note{Note: told(news)}}); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// told returns the note of a change. For a removed note it names only the effect.
func told(news progress.News) *agentv1.RunNote {
	if news.Gone {
		return &agentv1.RunNote{Run: news.Key.Run, Intent: news.Key.Intent}
	}
	return news.Value
}
