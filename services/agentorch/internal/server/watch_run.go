package server

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/board"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/content"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/note"
)

// watchPage bounds how many events are read at once, so that a slow watcher holds little.
const watchPage = 200

// WatchRun streams a run's events until the run has ended. Each watcher is fed from the store, at its own pace: a wake-up only says that there is more.
func (s *Runs) WatchRun(r *agentv1.WatchRunRequest, stream grpc.ServerStreamingServer[agentv1.WatchRunResponse]) error {
	ctx := stream.Context()
	head, err := s.head(ctx, "name", r.GetName())
	if err != nil {
		return err
	}
	if r.GetDeltas() {
		return rpcerr.NotBuiltYet("watching pieces of answers (deltas)")
	}
	after, err := readCursor(r.GetName(), r.GetCursor())
	if err != nil {
		return err
	}
	wake := s.deps.Store.Subscribe(r.GetName())
	defer wake.Close()
	notes := s.deps.Notes.Watch(note.OfRun(r.GetName()))
	defer notes.Close()
	beats := time.NewTicker(board.Heartbeat)
	defer beats.Stop()
	for ended := false; ; {
		page, err := s.deps.Store.Read(ctx, head.Ref, journal.Range{After: after, Limit: watchPage, Bare: !r.GetContent()})
		if err != nil {
			return journal.Gone(err, head.Name)
		}
		for _, e := range page {
			after = e.GetSeq()
			ended = ended || e.GetRunFinished() != nil
			if !r.GetContent() {
				content.Strip(e)
			}
			if err := stream.Send(&agentv1.WatchRunResponse{Event: e, Cursor: cursor(r.GetName(), after)}); err != nil {
				return err
			}
		}
		if len(page) > 0 {
			beats.Reset(board.Heartbeat)
			continue
		}
		if ended || after > 0 && s.endedBefore(stream, head, after) {
			return nil
		}
		for _, news := range notes.Next() { // After the events, which have the intents.
			if err := stream.Send(&agentv1.WatchRunResponse{Cursor: cursor(r.GetName(), after), Note: told(news)}); err != nil {
				return err
			}
		}
		select {
		case <-wake.C:
		case <-notes.C:
		case <-beats.C:
			if err := stream.Send(&agentv1.WatchRunResponse{Cursor: cursor(r.GetName(), after)}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// told is the note of a change; of one that is gone it says only whose it was.
func told(news note.News) *agentv1.RunNote {
	if news.Gone {
		return &agentv1.RunNote{Run: news.Key.Run, Intent: news.Key.Intent}
	}
	return news.Value
}

// endedBefore reports whether the run ended with an event that the watcher had before it came.
func (s *Runs) endedBefore(stream grpc.ServerStreamingServer[agentv1.WatchRunResponse], head journal.Head, after int64) bool {
	last, err := s.deps.Store.Read(stream.Context(), head.Ref, journal.Range{After: after - 1, Limit: 1, Bare: true})
	return err == nil && len(last) == 1 && last[0].GetRunFinished() != nil
}

// cursor names a place in a run's journal.
func cursor(name string, seq int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(resource.LastID(name) + ":" + strconv.FormatInt(seq, 10)))
}

func readCursor(name, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	id, place, _ := strings.Cut(string(b), ":")
	seq, numberErr := strconv.ParseInt(place, 10, 64)
	if err != nil || numberErr != nil || seq < 0 || id != resource.LastID(name) {
		return 0, rpcerr.InvalidCursor("cursor", "the cursor is not one of this run; begin again without it")
	}
	return seq, nil
}
