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

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/watch"
)

// changing has the changes of the project p, and reads two at once.
type changing struct {
	journal.Store
	journal.Hub

	mu   sync.Mutex
	rows []journal.Listed
	last journal.Change
}

func (c *changing) Subscribe(topic string) *journal.Subscription { return c.Hub.Subscribe(topic) }

func (c *changing) Changed(_ context.Context, q journal.ChangeQuery) (page []journal.Listed, newest journal.Change, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, row := range c.rows {
		if row.Change > q.After && len(page) < 2 && (!q.Roots || row.Parent == "") {
			page = append(page, row)
		}
	}
	return page, c.last, nil
}

// change moves a journal to the end.
func (c *changing) change(names ...string) *changing {
	c.mu.Lock()
	for _, name := range names {
		c.last++
		c.rows = slices.DeleteFunc(c.rows, func(l journal.Listed) bool { return l.Name == name })
		c.rows = append(c.rows, journal.Listed{Head: journal.Head{Name: name}, Change: c.last})
	}
	c.mu.Unlock()
	c.Notify("projects/p")
	return c
}

// changes collects what a watcher of a project receives. It stops after a number of names or beats.
type changes struct {
	names   []string
	cursors []string
	beats   []time.Time
	place   string // the last cursor
	enough  int
}

var errEnough = errors.New("enough")

func (c *changes) watch() watch.Project {
	return watch.Project{
		ID: "p", Of: &agentv1.WatchProjectRequest{Parent: "projects/p"},
		Emit: func(rows []journal.Listed, last journal.Change, cursor func(journal.Change) string) error {
			for _, row := range rows {
				c.names, c.cursors = append(c.names, row.Name), append(c.cursors, cursor(row.Change))
			}
			if len(rows) == 0 {
				c.beats = append(c.beats, time.Now())
			}
			if c.place = cursor(last); len(c.names)+len(c.beats) >= c.enough {
				return errEnough
			}
			return nil
		},
	}
}

func TestAWatchOfAProjectGivesWhatChangedAndGoesOnAfterACursor(t *testing.T) {
	t.Parallel()
	s := (&changing{}).change("a", "b", "c", "a", "d", "b")
	all := &changes{enough: 4}
	require.ErrorIs(t, watch.FollowProject(t.Context(), s, all.watch()), errEnough)
	assert.Equal(t, []string{"c", "a", "d", "b"}, all.names, "by the last change")
	for i, cursor := range all.cursors[:3] {
		rest := &changes{enough: 3 - i}
		w := rest.watch()
		w.Cursor, w.FromHead = cursor, true
		require.ErrorIs(t, watch.FollowProject(t.Context(), s, w), errEnough)
		assert.Equal(t, all.names[i+1:], rest.names)
	}
}

// From the head, the place of now comes first, then what changes. In silence there are beats, whose place is that of
// now.
func TestAWatchOfAProjectFromTheHeadWaitsAndBeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, got, began := (&changing{}).change("a", "b"), &changes{enough: 4}, time.Now()
		time.AfterFunc(time.Second, func() { s.change("b", "c") })
		w := got.watch()
		w.FromHead = true
		require.ErrorIs(t, watch.FollowProject(t.Context(), s, w), errEnough)
		assert.Equal(t, []string{"b", "c"}, got.names)
		assert.Equal(t, []time.Time{began, began.Add(time.Second + lastvalue.Heartbeat)}, got.beats)

		s.change("d")
		rest := &changes{enough: 1}
		w = rest.watch()
		w.Cursor = got.place
		require.ErrorIs(t, watch.FollowProject(t.Context(), s, w), errEnough)
		assert.Equal(t, []string{"d"}, rest.names)
	})
}

func TestWhyAWatchOfAProjectFails(t *testing.T) {
	t.Parallel()
	s, got := (&changing{}).change("a", "b"), &changes{enough: 2}
	require.ErrorIs(t, watch.FollowProject(t.Context(), s, got.watch()), errEnough)
	for name, change := range map[string]func(*watch.Project) journal.Store{
		"another request": func(w *watch.Project) journal.Store {
			w.Of = &agentv1.WatchProjectRequest{Parent: "projects/q"}
			return s
		},
		"another store": func(*watch.Project) journal.Store { return (&changing{}).change("a") },
	} {
		w := (&changes{}).watch()
		w.Cursor = got.place
		assert.True(t, rpcerr.Is(watch.FollowProject(t.Context(), change(&w), w), errorsv1.ErrorReason_ERROR_REASON_INVALID_CURSOR), name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, watch.FollowProject(ctx, &changing{}, (&changes{enough: 1}).watch()), context.Canceled)
}
