package server

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/board"
	"github.com/evalfleet/evalfleet/pkg/effect"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
)

// retries are the calls with a key that wait for another attempt.
type retries struct {
	board.Board[effect.Key, *effectv1.Note]
}

// of returns what a call tells when it sleeps between attempts.
func (r *retries) of(key effect.Key) func(*modelv1.FailedAttempt) {
	attempts := int32(0)
	return func(failed *modelv1.FailedAttempt) {
		if failed == nil {
			r.Clear(key)
			return
		}
		attempts++
		r.Post(key, &effectv1.Note{
			Message: failed.GetError(), Time: failed.GetEndTime(), FailedAttempts: attempts,
			RetryAt: timestamppb.New(failed.GetEndTime().AsTime().Add(failed.GetWait().AsDuration())),
		})
	}
}

// WatchRetries implements ModelService.
func (s *Server) WatchRetries(r *modelv1.WatchRetriesRequest, out grpc.ServerStreamingServer[modelv1.WatchRetriesResponse]) error {
	meant, err := resource.Within("parent", r.GetParent())
	if err != nil {
		return err
	}
	return s.retries.Follow(out.Context(), func(key effect.Key) bool { return meant(key.Project) }, func(news *board.News[effect.Key, *effectv1.Note]) error {
		if news == nil {
			return out.Send(&modelv1.WatchRetriesResponse{})
		}
		return out.Send(&modelv1.WatchRetriesResponse{Parent: "projects/" + news.Key.Project, RequestId: news.Key.ID, Note: news.Value})
	})
}
