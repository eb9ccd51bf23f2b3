package journaltest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// under: a journal is created under another one by the owner of that one alone, and while that one is open.
func under(t *testing.T, s journal.Store) {
	parent := mustCreate(t, s, journal.Creation{Name: name("parent")})
	create := func(id string, under journal.Head) (journal.Head, error) {
		head, _, err := s.Create(t.Context(), journal.Creation{
			Name: name(id), Owner: "r1", Entries: notes(1, "1"), Row: row(), Request: id, Under: under,
		})
		return head, err
	}
	child, err := create("child", parent)
	require.NoError(t, err)
	grown := mustAppend(t, s, parent, notes(2, "2")...)
	_, err = create("second", parent)
	require.NoError(t, err, "the parent may have grown")

	taken, err := s.Take(t.Context(), grown, "r2", 0)
	require.NoError(t, err)
	_, err = create("late", grown)
	fenced := &journal.FencedError{}
	require.ErrorAs(t, err, &fenced)
	assert.Equal(t, taken, fenced.Now)
	_, err = s.Open(t.Context(), name("late"))
	require.ErrorIs(t, err, journal.ErrNotFound)
	again, err := create("child", grown)
	require.NoError(t, err, "it is there already")
	assert.Equal(t, child.Ref, again.Ref)
	_, err = create("of the new owner", taken)
	require.NoError(t, err)

	done := row()
	done.Done = true
	require.NoError(t, s.Append(t.Context(), journal.Append{Head: taken, Entries: notes(3, "3"), Row: &done}))
	taken.Seq++
	_, err = create("after the end", taken)
	require.ErrorIs(t, err, journal.ErrFenced)
}
