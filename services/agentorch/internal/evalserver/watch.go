package evalserver

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/board"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/note"
)

const (
	// progressPause is the least time between two sends of the progress.
	progressPause = 250 * time.Millisecond
	// progressRest is how many times as long as the last look at the runs took a watch rests, but for lookPause at most. So a
	// watch of very many runs looks for a small part of the time.
	progressRest = 20
	// lookPause is how often a watch of the progress looks for what is in no event: runs that wait.
	lookPause = 2 * time.Second
	// maxNotes bounds the notes that are sent with the progress.
	maxNotes = 10
	// maxSamples bounds the samples at work that are sent with the progress.
	maxSamples = 20
)

// WatchEval streams events, and the progress when asked, until the evaluation has ended and all is sent. A resumed evaluation can be watched again from the last cursor.
func (s *Server) WatchEval(req *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
	if _, err := resource.Parse("name", req.GetName(), "evals"); err != nil {
		return err
	}
	bound := &agentv1.WatchEvalRequest{Name: req.GetName()}
	after, err := resource.ReadCursor(req.GetCursor(), bound)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	sub := s.journals.Subscribe(req.GetName())
	defer sub.Close()
	head, err := s.journals.Open(ctx, req.GetName())
	if err != nil {
		return journal.Gone(err, req.GetName())
	}
	state := &eval.State{}
	for event, err := range journal.All(ctx, s.journals, head.Ref, 0) { // What came before the cursor counts for the progress.
		if err != nil {
			return journal.Gone(err, head.Name)
		}
		if event.GetSeq() > after {
			break
		}
		state.Apply(event)
	}
	send := func(event *agentv1.Event) error {
		if !req.GetContent() {
			event = s.bare(event)
		}
		return stream.Send(&agentv1.WatchEvalResponse{Event: event, Cursor: resource.Cursor(event.GetSeq(), bound)})
	}
	beats := time.NewTicker(board.Heartbeat)
	defer beats.Stop()
	var (
		noted <-chan struct{}
		look  <-chan time.Time
	)
	if req.GetProgress() {
		notes := s.notes.Watch(note.OfEval(req.GetName()))
		defer notes.Close()
		looks := time.NewTicker(lookPause)
		defer looks.Stop()
		noted, look = notes.C, looks.C
	}
	var (
		sent  *agentv1.WatchEvalResponse
		pause time.Duration
	)
	for {
		for event, err := range journal.All(ctx, s.journals, head.Ref, after) {
			if err != nil {
				return journal.Gone(err, head.Name)
			}
			state.Apply(event)
			after = event.GetSeq()
			if err := send(event); err != nil {
				return err
			}
		}
		if req.GetProgress() {
			began := time.Now()
			var open map[string][]*agentv1.Run
			if !state.Ended() {
				if open, err = s.running(ctx, journal.Query{Parent: req.GetName()}); err != nil {
					return err
				}
			}
			runs := open[req.GetName()]
			progress, err := s.live(ctx, state.Eval, runs)
			if err != nil {
				return err
			}
			pause = min(max(progressPause, progressRest*time.Since(began)), lookPause)
			running := s.atWork(state, runs[:min(len(runs), maxSamples)])
			notes := note.Latest(s.notes, note.OfEval(req.GetName()), maxNotes)
			if now := (&agentv1.WatchEvalResponse{Progress: progress, Notes: notes, Running: running}); !proto.Equal(now, sent) {
				if err := stream.Send(now); err != nil {
					return err
				}
				sent = now
			}
		}
		if state.Ended() {
			return nil
		}
		if req.GetProgress() { // Changes that come together are shown together.
			if err := retry.Sleep(ctx, pause); err != nil {
				return err
			}
		}
		select {
		case <-sub.C:
		case <-look:
		case <-noted:
		case <-beats.C:
			if err := stream.Send(&agentv1.WatchEvalResponse{}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
