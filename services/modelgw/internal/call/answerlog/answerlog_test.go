package answerlog_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/effect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/call/answerlog"
)

func text(s string) *modelv1.GenerateDelta {
	return &modelv1.GenerateDelta{Piece: &modelv1.GenerateDelta_Text{Text: s}}
}

// events are what a watcher sees, in short.
func events(s *answerlog.Stream, over <-chan struct{}, from answerlog.Place) []string {
	var all []string
	for event := range s.Watch(context.Background(), over, from) {
		switch {
		case event.GetStarted() != nil:
			all = append(all, "started "+event.GetCursor())
		case event.GetRestart() != nil:
			all = append(all, "restart "+event.GetCursor())
		default:
			all = append(all, event.GetDelta().GetText()+" "+event.GetCursor())
		}
	}
	return all
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestAWatcherSeesWhatFollowsItsPlace(t *testing.T) {
	t.Parallel()
	s := &answerlog.Stream{}
	s.Started(context.Background(), 1, "v/m")
	s.Delta(context.Background(), text("a"))
	s.Restart(context.Background(), 2, "v/m")
	s.Delta(context.Background(), text("b"))
	s.Delta(context.Background(), text("c"))
	for cursor, want := range map[string][]string{
		"":      {"started 0.2.0", "b 0.2.1", "c 0.2.2"},
		"0.1.0": {"started 0.2.0", "b 0.2.1", "c 0.2.2"},
		"0.1.1": {"restart 0.2.0", "b 0.2.1", "c 0.2.2"},
		"0.2.0": {"b 0.2.1", "c 0.2.2"},
		"0.2.1": {"c 0.2.2"},
		"0.2.2": nil,
		"9.9.9": nil,
	} {
		place, err := answerlog.ParsePlace(cursor)
		require.NoError(t, err)
		assert.Equal(t, want, events(s, closed(), place), "from %q", cursor)
	}
}

// TestAWatcherOfALostExecutionSeesTheRestart: what a dead process streamed is no beginning of its successor's answer.
func TestAWatcherOfALostExecutionSeesTheRestart(t *testing.T) {
	t.Parallel()
	s := &answerlog.Stream{}
	s.Execute(1)
	for _, cursor := range []string{"", "0.1.1"} {
		place, err := answerlog.ParsePlace(cursor)
		require.NoError(t, err)
		assert.Empty(t, events(s, closed(), place), "it has not begun, from %q", cursor)
	}
	s.Started(context.Background(), 1, "v/m")
	s.Delta(context.Background(), text("a"))
	s.Delta(context.Background(), text("b"))
	for cursor, want := range map[string][]string{
		"0.1.1": {"restart 1.1.0", "a 1.1.1", "b 1.1.2"},
		"0.7.1": {"restart 1.1.0", "a 1.1.1", "b 1.1.2"},
		"1.1.1": {"b 1.1.2"},
	} {
		place, err := answerlog.ParsePlace(cursor)
		require.NoError(t, err)
		assert.Equal(t, want, events(s, closed(), place), "from %q", cursor)
	}
}

func TestAWatcherSeesWhatComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, over := &answerlog.Stream{}, make(chan struct{})
		seen := make(chan []string)
		go func() { seen <- events(s, over, answerlog.Place{}) }()
		for _, piece := range []string{"a", "b", "c"} {
			synctest.Wait()
			if piece == "a" {
				s.Started(context.Background(), 1, "v/m")
			}
			s.Delta(context.Background(), text(piece))
		}
		close(over) // the last piece came just before
		assert.Equal(t, []string{"started 0.1.0", "a 0.1.1", "b 0.1.2", "c 0.1.3"}, <-seen)
	})
}

func TestAnAnswerThatIsTooLongIsNotKept(t *testing.T) {
	t.Parallel()
	s := &answerlog.Stream{}
	s.Started(context.Background(), 1, "v/m")
	big := text(string(make([]byte, 1<<20)))
	for range 10 {
		s.Delta(context.Background(), big)
	}
	s.Delta(context.Background(), text("x"))
	assert.Less(t, len(events(s, closed(), answerlog.Place{})), 6)
}

func TestCursorsThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	for _, cursor := range []string{"x", "1", "1.2", "1.2.", ".1.2", "-1.2.3", "1.-2.3", "1.2.-3", "1.2.3.4", "1.2.3x", "1,2,3"} {
		_, err := answerlog.ParsePlace(cursor)
		require.Error(t, err, cursor)
	}
	place, err := answerlog.ParsePlace(answerlog.Place{Execution: 2, Attempt: 3, Offset: 41}.String())
	require.NoError(t, err)
	assert.Equal(t, answerlog.Place{Execution: 2, Attempt: 3, Offset: 41}, place)
}

func TestStreamsAreForgottenWhenNobodyUsesThem(t *testing.T) {
	t.Parallel()
	var streams answerlog.Streams
	key := effect.Key{Project: "p", ID: "k"}
	first, release := streams.Open(key)
	second, releaseSecond := streams.Open(key)
	assert.Same(t, first, second)
	release()
	third, releaseThird := streams.Open(key)
	assert.Same(t, first, third)
	releaseSecond()
	releaseThird()
	fourth, releaseFourth := streams.Open(key)
	assert.NotSame(t, first, fourth)
	releaseFourth()
}
