package call

import (
	"context"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/call/answerlog"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
)

// endCursor is the cursor of the last event.
const endCursor = "end"

func (c *Calls) stream(ctx context.Context, w *work, emit Emit) error {
	if w.key.IsZero() && !w.request.GetConfig().GetCache().GetEnabled() { // No other caller waits for its answer.
		return pass(ctx, emit, func(ctx context.Context, sink generate.Sink) (*modelv1.GenerateResponse, error) {
			return do(ctx, c, w, sink, c.generated)
		})
	}
	stream := &answerlog.Stream{}
	if !w.key.IsZero() {
		shared, release := c.streams.Open(w.key)
		defer release()
		stream = shared
	}
	return relay(ctx, emit, stream, answerlog.Place{}, func(ctx context.Context) (*modelv1.GenerateResponse, error) {
		return do(ctx, c, w, stream, c.generated)
	})
}

// ahead is how many events of a call may wait for its one watcher.
const ahead = 16

// pass sends the events of a call to its one watcher as they come, and then its result. The provider's stream is not
// read further than the watcher takes it.
func pass(ctx context.Context, emit Emit, call func(context.Context, generate.Sink) (*modelv1.GenerateResponse, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var answer *modelv1.GenerateResponse
	var failure error
	w := &watcher{events: make(chan *modelv1.StreamGenerateResponse, ahead), end: cancel}
	var helper sync.WaitGroup
	defer helper.Wait()
	defer cancel(nil)
	helper.Go(func() {
		defer close(w.events)
		answer, failure = call(ctx, w)
	})
	if err := send(emit, w.events, ""); err != nil {
		return err
	}
	if failure != nil {
		return failure
	}
	return emit(&modelv1.StreamGenerateResponse{Event: &modelv1.StreamGenerateResponse_Completed{Completed: answer}})
}

// watcher is the only one of a call. It is a generate.Sink that waits until there is room for an event. An event that
// finds none in its attempt's time ends the call: what follows would make no sense without it, and another attempt would
// be paid for.
type watcher struct {
	events chan *modelv1.StreamGenerateResponse
	end    context.CancelCauseFunc
}

// Started implements generate.Sink.
func (w *watcher) Started(ctx context.Context, attempt int, model string) {
	w.tell(ctx, &modelv1.StreamGenerateResponse{Event: &modelv1.StreamGenerateResponse_Started{Started: &modelv1.GenerateStarted{Attempt: int32(attempt), Model: model}}})
}

// Delta implements generate.Sink.
func (w *watcher) Delta(ctx context.Context, d *modelv1.GenerateDelta) {
	w.tell(ctx, &modelv1.StreamGenerateResponse{Event: &modelv1.StreamGenerateResponse_Delta{Delta: d}})
}

// Restart implements generate.Sink.
func (w *watcher) Restart(ctx context.Context, attempt int, _ string) {
	w.tell(ctx, &modelv1.StreamGenerateResponse{Event: &modelv1.StreamGenerateResponse_Restart{Restart: &modelv1.GenerateRestart{Attempt: int32(attempt)}}})
}

func (w *watcher) tell(ctx context.Context, event *modelv1.StreamGenerateResponse) {
	select {
	case w.events <- event:
		return
	default:
	}
	select {
	case w.events <- event:
	case <-ctx.Done():
		w.end(rpcerr.DeadlineExceeded("the stream was not read in the time of the attempt"))
	}
}

// Attach sends the events of a call with a key, from the one after a cursor; an empty cursor is the beginning. emit is
// called from one goroutine.
func (c *Calls) Attach(ctx context.Context, key effect.Key, cursor string, emit Emit) error {
	if cursor == endCursor {
		return nil
	}
	from, err := answerlog.ParsePlace(cursor)
	if err != nil {
		return rpcerr.InvalidCursor("cursor", "cursor: %v", err)
	}
	stream, release := c.streams.Open(key)
	defer release()
	return relay(ctx, emit, stream, from, func(ctx context.Context) (*modelv1.GenerateResponse, error) {
		result, err := c.deps.Effects.Attach(ctx, key)
		if err != nil {
			return nil, err
		}
		answer, err := decode[*modelv1.GenerateResponse](result)
		if err == nil && answer.GetOutput() == nil {
			return nil, rpcerr.InvalidField("request_id", "%q is the key of a compaction, which has no stream; call Compact with it again", key.ID)
		}
		return answer, err
	})
}

// relay sends the events of a stream, those that arrive while call runs included, and then call's result.
func relay(ctx context.Context, emit Emit, stream *answerlog.Stream, from answerlog.Place, call func(context.Context) (*modelv1.GenerateResponse, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	var answer *modelv1.GenerateResponse
	var failure error
	over, events := make(chan struct{}), make(chan *modelv1.StreamGenerateResponse)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	helpers.Go(func() {
		defer close(over)
		answer, failure = call(ctx)
	})
	helpers.Go(func() {
		defer close(events)
		for event := range stream.Watch(ctx, over, from) {
			select {
			case events <- event:
			case <-ctx.Done():
				return
			}
		}
	})
	if err := send(emit, events, from.String()); err != nil {
		return err
	}
	<-over
	if failure != nil {
		return failure
	}
	return emit(&modelv1.StreamGenerateResponse{Cursor: endCursor, Event: &modelv1.StreamGenerateResponse_Completed{Completed: answer}})
}

// send forwards events, with a heartbeat after a long silence, until their channel is closed.
func send(emit Emit, events <-chan *modelv1.StreamGenerateResponse, cursor string) error {
	beat := time.NewTicker(lastvalue.Heartbeat)
	defer beat.Stop()
	for {
		var event *modelv1.StreamGenerateResponse
		select {
		case next, ok := <-events:
			if !ok {
				return nil
			}
			event, cursor = next, next.GetCursor()
			beat.Reset(lastvalue.Heartbeat)
		case <-beat.C:
			event = &modelv1.StreamGenerateResponse{Cursor: cursor, Event: &modelv1.StreamGenerateResponse_Heartbeat{Heartbeat: &modelv1.GenerateHeartbeat{}}}
		}
		if err := emit(event); err != nil {
			return err
		}
	}
}
