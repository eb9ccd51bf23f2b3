package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/watch"
)

const (
	// progressPause is the least time between two sends of the progress.
	progressPause = 250 * time.Millisecond
	// progressRest is the ratio of a watch's pause to the duration of its last look at the runs; the pause is at most
	// lookPause. So a watch of very many runs spends a small part of the time on looks.
	progressRest = 20
	// lookPause is the interval at which a watch of the progress looks for changes without an event: runs that wait.
	lookPause = 2 * time.Second
	// maxNotes bounds the notes that are sent with the progress.
	maxNotes = 10
	// maxSamples bounds the active samples that are sent with the progress.
	maxSamples = 20
)

// WatchEval streams events, and on request the progress, until the evaluation has ended and everything is sent. A
// resumed evaluation can be watched again from the last cursor.
func (s *Evals) WatchEval(req *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
	if _, err := resource.Parse("name", req.GetName(), "evals"); err != nil {
		return err
	}
	w := watch.Watch{
		Journal: req.GetName(), Cursor: req.GetCursor(), FromHead: req.GetFromHead(), Of: &agentv1.WatchEvalRequest{Name: req.GetName()}, Content: req.GetContent(),
		Ended: eval.Ends,
		Emit: func(e *agentv1.Event, cursor string) error {
			r := &agentv1.WatchEvalResponse{Cursor: cursor}
			if e != nil {
				r.Update = &agentv1.WatchEvalResponse_Event{Event: e}
			}
			return stream.Send(r)
		},
	}
	if req.GetProgress() {
		notes := s.deps.Notes.Watch(progress.OfEval(req.GetName()))
		defer notes.Close()
		p := &evalProgress{server: s, name: req.GetName(), stream: stream, content: req.GetContent()}
		w.More, w.Look, w.Idle = notes.C, lookPause, func(_ string, ended bool) error { return p.send(stream.Context(), ended) }
	}
	return watch.Follow(stream.Context(), s.deps.Journals, w)
}

// evalProgress sends the progress of a watched evaluation.
type evalProgress struct {
	server *Evals
	name   string
	stream grpc.ServerStreamingServer[agentv1.WatchEvalResponse]
	sent   *agentv1.WatchEvalResponse
	// content is set if content is sent too.
	content bool
}

// send sends the progress if it has changed. Then it pauses, so that changes in quick succession are sent together.
func (p *evalProgress) send(ctx context.Context, ended bool) error {
	began := time.Now()
	state, err := p.server.deps.Engine.State(ctx, p.name) // All watchers share it. It may have later events than were sent.
	if err != nil {
		return err
	}
	standing, running, err := p.server.deps.Live.Progress(ctx, state, maxSamples)
	if err != nil {
		return err
	}
	pause := min(max(progressPause, progressRest*time.Since(began)), lookPause)
	notes := progress.Latest(p.server.deps.Notes, progress.OfEval(p.name), maxNotes)
	now := &agentv1.WatchEvalResponse{Update: &agentv1.WatchEvalResponse_Progress{Progress: standing}, Notes: notes, Running: running}
	if !p.content {
		now = redact.Content(now)
	}
	if !proto.Equal(now, p.sent) {
		if err := p.stream.Send(now); err != nil {
			return err
		}
		p.sent = now
	}
	if ended {
		return nil
	}
	return retry.Sleep(ctx, pause)
}
