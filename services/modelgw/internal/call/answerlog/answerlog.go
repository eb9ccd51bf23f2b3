// Package answerlog lets any number of watchers follow the answer of a call as it arrives, from the start or from a
// cursor.
//
// The pieces of the current attempt are kept until the call ends; afterwards only its result counts. A cursor of a
// stream is (execution, attempt, offset): a watcher of an earlier attempt, or of one that a dead process made, is
// notified of the restart.
package answerlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/effect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// maxBytes bounds the pieces that are kept of one answer. Beyond it watchers wait for the result.
const maxBytes = 4 << 20

// pieceBytes is about the size of a piece beside its text.
const pieceBytes = 64

// Place is a place in a stream. The zero value is before everything.
type Place struct {
	// Execution counts the earlier executions of the call, which were lost with their processes or cut short.
	Execution int
	// Attempt is the attempt within the execution, from 1; Offset is how many of its pieces are known.
	Attempt, Offset int
}

// String returns the place as a cursor.
func (p Place) String() string { return fmt.Sprintf("%d.%d.%d", p.Execution, p.Attempt, p.Offset) }

// before reports whether the attempt of p precedes that of other.
func (p Place) before(other Place) bool {
	return cmp.Or(cmp.Compare(p.Execution, other.Execution), cmp.Compare(p.Attempt, other.Attempt)) < 0
}

// ParsePlace reads a cursor; empty is the zero place.
func ParsePlace(cursor string) (Place, error) {
	var p Place
	if cursor == "" {
		return p, nil
	}
	var rest string
	n, _ := fmt.Sscanf(cursor+" ", "%d.%d.%d%s", &p.Execution, &p.Attempt, &p.Offset, &rest)
	if n != 3 || min(p.Execution, p.Attempt, p.Offset) < 0 {
		return Place{}, errors.New("is no cursor of this stream")
	}
	return p, nil
}

// Stream is the answer of one call as it arrives. It is a generate.Sink that waits for no watcher; its other methods are
// safe for concurrent use.
type Stream struct {
	mu sync.Mutex
	// attempt is the current attempt; its offset is 0.
	attempt Place
	// model is that of the attempt.
	model   string
	pieces  []*modelv1.GenerateDelta
	bytes   int
	changed chan struct{} // created by waiting callers, closed and removed on a change
}

// Execute begins an execution of the call, after so many earlier ones.
func (s *Stream) Execute(earlier int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt = Place{Execution: earlier}
	s.model, s.pieces, s.bytes = "", nil, 0
}

// Started implements generate.Sink.
func (s *Stream) Started(_ context.Context, attempt int, model string) { s.begin(attempt, model) }

// Restart implements generate.Sink.
func (s *Stream) Restart(_ context.Context, attempt int, model string) { s.begin(attempt, model) }

func (s *Stream) begin(attempt int, model string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt.Attempt, s.model, s.pieces, s.bytes = attempt, model, nil, 0
	s.wake()
}

// Delta implements generate.Sink.
func (s *Stream) Delta(_ context.Context, d *modelv1.GenerateDelta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := pieceBytes + dialect.DeltaSize(d)
	if s.bytes+size > maxBytes {
		s.bytes = maxBytes
		return
	}
	s.bytes += size
	s.pieces = append(s.pieces, d)
	s.wake()
}

func (s *Stream) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// next returns what follows a place: a new attempt at a model, with or without pieces, or more pieces of it. If there
// is nothing yet, it returns a channel that is closed on a change.
func (s *Stream) next(p Place) (attempt Place, model string, pieces []*modelv1.GenerateDelta, wait <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.attempt.Attempt == 0: // It has not begun.
	case p.before(s.attempt):
		return s.attempt, s.model, s.pieces, nil
	case !s.attempt.before(p) && len(s.pieces) > p.Offset:
		return s.attempt, s.model, s.pieces[p.Offset:], nil
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return Place{}, "", nil, s.changed
}

// Watch yields the events after a place, each with its cursor. It ends with ctx, or when over is closed and all earlier
// events were yielded.
func (s *Stream) Watch(ctx context.Context, over <-chan struct{}, from Place) iter.Seq[*modelv1.StreamGenerateResponse] {
	return func(yield func(*modelv1.StreamGenerateResponse) bool) {
		for at, last := from, false; ; {
			attempt, model, pieces, wait := s.next(at)
			if wait != nil {
				if last {
					return
				}
				select {
				case <-wait:
				case <-over:
					last = true
				case <-ctx.Done():
					return
				}
				continue
			}
			if at.before(attempt) {
				event := begins(at, attempt.Attempt, model)
				at = attempt
				event.Cursor = at.String()
				if !yield(event) {
					return
				}
			}
			for _, piece := range pieces {
				at.Offset++
				event := &modelv1.StreamGenerateResponse{Cursor: at.String(), Event: &modelv1.StreamGenerateResponse_Delta{Delta: piece}}
				if !yield(event) {
					return
				}
			}
		}
	}
}

// begins is the event of a new attempt: a restart if the watcher has seen pieces of an earlier one.
func begins(at Place, attempt int, model string) *modelv1.StreamGenerateResponse {
	number := int32(attempt)
	if at.Offset > 0 {
		return &modelv1.StreamGenerateResponse{Event: &modelv1.StreamGenerateResponse_Restart{Restart: &modelv1.GenerateRestart{Attempt: number}}}
	}
	return &modelv1.StreamGenerateResponse{Event: &modelv1.StreamGenerateResponse_Started{Started: &modelv1.GenerateStarted{Attempt: number, Model: model}}}
}

// Streams are the streams of calls that are made or watched, by key. The zero value is ready to use.
type Streams struct {
	mu    sync.Mutex
	byKey map[effect.Key]*shared
}

type shared struct {
	stream Stream
	users  int
}

// Open returns the stream of a key, the same one for all concurrent users. The returned function ends the use.
func (s *Streams) Open(key effect.Key) (stream *Stream, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, ok := s.byKey[key]
	if !ok {
		entry = &shared{}
		if s.byKey == nil {
			s.byKey = map[effect.Key]*shared{}
		}
		s.byKey[key] = entry
	}
	entry.users++
	return &entry.stream, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if entry.users--; entry.users == 0 {
			delete(s.byKey, key)
		}
	}
}
