package watch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/watch"
)

// store has one journal, which is read in pages of two.
type store struct {
	journal.Store
	journal.Hub

	mu     sync.Mutex
	events []*agentv1.Event
	gone   bool
}

func (s *store) Subscribe(name string) *journal.Subscription { return s.Hub.Subscribe(name) }

func (s *store) Open(_ context.Context, name string) (journal.Head, error) {
	if name != "j" {
		return journal.Head{}, journal.ErrNotFound
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return journal.Head{Name: name, Seq: int64(len(s.events))}, nil
}

func (s *store) Read(_ context.Context, _ journal.Ref, r journal.Range) ([]*agentv1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return nil, journal.ErrNotFound
	}
	var page []*agentv1.Event
	for _, e := range s.events[min(int(r.After), len(s.events)):] {
		if len(page) < 2 {
			page = append(page, proto.CloneOf(e))
		}
	}
	return page, nil
}

// append adds events with texts to the journal, and the end for an empty text.
func (s *store) append(texts ...string) *store {
	s.mu.Lock()
	for _, text := range texts {
		e := &agentv1.Event{Seq: int64(len(s.events) + 1), Kind: &agentv1.Event_RunFinished{RunFinished: &agentv1.RunFinished{}}}
		if text != "" {
			e.Kind = &agentv1.Event_OutputSet{OutputSet: &agentv1.OutputSet{Completion: new(text)}}
		}
		s.events = append(s.events, e)
	}
	s.mu.Unlock()
	s.Notify("j")
	return s
}

// seen collects what a watcher receives.
type seen struct {
	seqs    []int64
	texts   []string
	cursors []string
	beats   []time.Time
}

func (s *seen) watch() watch.Watch {
	return watch.Watch{
		Journal: "j", Of: &agentv1.WatchRunRequest{Name: "j"},
		Ended: func(e *agentv1.Event) bool { return e.GetRunFinished() != nil },
		Emit: func(e *agentv1.Event, cursor string) error {
			if e == nil {
				s.beats = append(s.beats, time.Now())
				return nil
			}
			s.seqs, s.cursors = append(s.seqs, e.GetSeq()), append(s.cursors, cursor)
			s.texts = append(s.texts, e.GetOutputSet().GetCompletion())
			return nil
		},
	}
}

func TestAWatchGivesEachEventOnceAndGoesOnAfterACursor(t *testing.T) {
	t.Parallel()
	s, all := (&store{}).append("a", "b", "c", ""), &seen{}
	w := all.watch()
	w.Content = true
	require.NoError(t, watch.Follow(t.Context(), s, w))
	assert.Equal(t, []int64{1, 2, 3, 4}, all.seqs)
	assert.Equal(t, []string{"a", "b", "c", ""}, all.texts)
	for i, cursor := range all.cursors {
		rest := &seen{}
		w := rest.watch()
		w.Cursor = cursor
		require.NoError(t, watch.Follow(t.Context(), s, w), "it ends, also when the end was sent before")
		assert.Equal(t, all.seqs[i+1:], append([]int64{}, rest.seqs...))
		assert.Empty(t, slices.DeleteFunc(rest.texts, func(text string) bool { return text == "" }), "without content")
	}
}

// A watch from the head begins with the place of now, and gives what comes after it.
func TestAWatchFromTheHeadLeavesOutWhatThereIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, got := (&store{}).append("a", "b"), &seen{}
		w := got.watch()
		w.FromHead = true
		began := time.Now()
		time.AfterFunc(time.Second, func() { s.append("c", "") })
		require.NoError(t, watch.Follow(t.Context(), s, w))
		assert.Equal(t, []int64{3, 4}, got.seqs)
		assert.Equal(t, []time.Time{began}, got.beats)

		again := &seen{}
		w = again.watch()
		w.FromHead, w.Cursor = true, got.cursors[0]
		require.NoError(t, watch.Follow(t.Context(), s, w))
		assert.Equal(t, []int64{4}, again.seqs, "a cursor counts")

		ended := &seen{}
		w = ended.watch()
		w.FromHead = true
		require.NoError(t, watch.Follow(t.Context(), s, w), "the head may be the end")
		assert.Empty(t, ended.seqs)
		assert.Len(t, ended.beats, 1)
	})
}

func TestAWatchWaitsForMoreAndBeatsInSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, all, began := (&store{}).append("a"), &seen{}, time.Now()
		time.AfterFunc(lastvalue.Heartbeat-time.Second, func() { s.append("b") })
		time.AfterFunc(3*lastvalue.Heartbeat, func() { s.append("") })
		idle := 0
		w := all.watch()
		w.Look, w.Idle = 4*time.Second, func(string, bool) error { idle++; return nil }
		require.NoError(t, watch.Follow(t.Context(), s, w))
		assert.Equal(t, []int64{1, 2, 3}, all.seqs)
		require.Len(t, all.beats, 2)
		assert.Equal(t, 2*lastvalue.Heartbeat-time.Second, all.beats[0].Sub(began), "the event put the beat off")
		assert.Greater(t, idle, 10, "it looks by itself")
	})
}

func TestWhyAWatchFails(t *testing.T) {
	t.Parallel()
	s := (&store{}).append("a", "")
	other := &seen{}
	w := other.watch()
	w.Of = &agentv1.WatchRunRequest{Name: "another"}
	require.NoError(t, watch.Follow(t.Context(), s, w))
	w = (&seen{}).watch()
	w.Cursor = other.cursors[0]
	assert.True(t, rpcerr.Is(watch.Follow(t.Context(), s, w), errorsv1.ErrorReason_ERROR_REASON_INVALID_CURSOR))
	w = (&seen{}).watch()
	w.Journal = "none"
	assert.Equal(t, codes.NotFound, rpcerr.Code(watch.Follow(t.Context(), s, w)))
	w = (&seen{}).watch()
	broken := errors.New("the stream is broken")
	w.Emit = func(*agentv1.Event, string) error { return broken }
	assert.ErrorIs(t, watch.Follow(t.Context(), s, w), broken)
	s.gone = true
	assert.Equal(t, codes.NotFound, rpcerr.Code(watch.Follow(t.Context(), s, (&seen{}).watch())))
}
