package server

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/board"
	"github.com/evalfleet/evalfleet/pkg/effect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/follow"
)

// endCursor is the cursor of the last event.
const endCursor = "end"

type outgoing = grpc.ServerStreamingServer[modelv1.StreamGenerateResponse]

// StreamGenerate implements ModelService.
func (s *Server) StreamGenerate(r *modelv1.StreamGenerateRequest, out outgoing) error {
	if r.GetRequest().GetValidateOnly() {
		return rpcerr.InvalidField("request.validate_only", "is for Generate, which answers with a message; there is no stream of a check")
	}
	w, err := s.plan(r.GetRequest())
	if err != nil {
		return err
	}
	return s.stream(out.Context(), w, out.Send)
}

// Answer is Generate for a client who waits at the other end of a connection of its own: the call ends where the wait before another attempt would be longer than maxWait.
func (s *Server) Answer(ctx context.Context, r *modelv1.GenerateRequest, maxWait time.Duration) (*modelv1.GenerateResponse, error) {
	w, err := s.plan(r)
	if err != nil {
		return nil, err
	}
	w.call.MaxWait = maxWait
	return s.do(ctx, w, nil)
}

// Follow is Answer as a stream, for a client that cannot take back what it was given: a call without a key ends with the first failure after a piece of its answer. emit is
// called from one goroutine; when it fails, so does the call.
func (s *Server) Follow(ctx context.Context, r *modelv1.GenerateRequest, maxWait time.Duration, emit emit) error {
	w, err := s.plan(r)
	if err != nil {
		return err
	}
	w.call.Committed, w.call.MaxWait = w.key.IsZero(), maxWait
	return s.stream(ctx, w, emit)
}

// emit takes one event of a stream.
type emit = func(*modelv1.StreamGenerateResponse) error

func (s *Server) stream(ctx context.Context, w *work, emit emit) error {
	stream := &follow.Stream{}
	if !w.key.IsZero() {
		shared, release := s.streams.Open(w.key)
		defer release()
		stream = shared
	}
	return relay(ctx, emit, stream, follow.Place{}, func(ctx context.Context) (*modelv1.GenerateResponse, error) {
		return s.do(ctx, w, stream)
	})
}

// AttachGenerate implements ModelService.
func (s *Server) AttachGenerate(r *modelv1.AttachGenerateRequest, out outgoing) error {
	key, err := keyOf(r.GetParent(), r.GetRequestId())
	if err != nil {
		return err
	}
	if r.GetCursor() == endCursor {
		return nil
	}
	from, err := follow.ParsePlace(r.GetCursor())
	if err != nil {
		return rpcerr.InvalidCursor("cursor", "cursor: %v", err)
	}
	stream, release := s.streams.Open(key)
	defer release()
	return relay(out.Context(), out.Send, stream, from, func(ctx context.Context) (*modelv1.GenerateResponse, error) {
		result, err := s.Runner.Attach(ctx, key)
		if err != nil {
			return nil, effectError(err, key)
		}
		return decode(result)
	})
}

// relay sends what a stream holds and what comes while call goes on, and then what call returned.
func relay(ctx context.Context, emit emit, stream *follow.Stream, from follow.Place, call func(context.Context) (*modelv1.GenerateResponse, error)) error {
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

// send passes events on, with a heartbeat where they are silent for long, until their channel is closed.
func send(emit emit, events <-chan *modelv1.StreamGenerateResponse, cursor string) error {
	beat := time.NewTicker(board.Heartbeat)
	defer beat.Stop()
	for {
		var event *modelv1.StreamGenerateResponse
		select {
		case next, ok := <-events:
			if !ok {
				return nil
			}
			event, cursor = next, next.GetCursor()
			beat.Reset(board.Heartbeat)
		case <-beat.C:
			event = &modelv1.StreamGenerateResponse{Cursor: cursor, Event: &modelv1.StreamGenerateResponse_Heartbeat{Heartbeat: &modelv1.GenerateHeartbeat{}}}
		}
		if err := emit(event); err != nil {
			return err
		}
	}
}

// CancelGenerate implements ModelService.
func (s *Server) CancelGenerate(ctx context.Context, r *modelv1.CancelGenerateRequest) (*modelv1.CancelGenerateResponse, error) {
	key, err := keyOf(r.GetParent(), r.GetRequestId())
	if err != nil {
		return nil, err
	}
	before, err := s.Runner.Cancel(ctx, key)
	if err != nil {
		return nil, effectError(err, key)
	}
	return &modelv1.CancelGenerateResponse{AlreadyDone: before.State.Finished() || before.State == effect.Released}, nil
}

// ReleaseGenerate implements ModelService.
func (s *Server) ReleaseGenerate(ctx context.Context, r *modelv1.ReleaseGenerateRequest) (*modelv1.ReleaseGenerateResponse, error) {
	keys := make([]effect.Key, len(r.GetRequestIds()))
	for i, id := range r.GetRequestIds() {
		key, err := keyOf(r.GetParent(), id)
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	if err := s.Ledger.Release(ctx, keys...); err != nil {
		return nil, err
	}
	return &modelv1.ReleaseGenerateResponse{}, nil
}

// ReleaseRunGenerates implements ModelService.
func (s *Server) ReleaseRunGenerates(ctx context.Context, r *modelv1.ReleaseRunGeneratesRequest) (*modelv1.ReleaseRunGeneratesResponse, error) {
	project, runs, err := resource.Children(r.GetParent(), "runs", r.GetRuns())
	if err != nil {
		return nil, err
	}
	if err := s.Ledger.ReleaseRuns(ctx, project, runs...); err != nil {
		return nil, err
	}
	return &modelv1.ReleaseRunGeneratesResponse{}, nil
}

func keyOf(parent, requestID string) (effect.Key, error) {
	project, err := resource.Project("parent", parent)
	return effect.Key{Project: project, ID: requestID}, err
}
