package journaltest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// said is an event that adds a message.
func said(seq int64, text string) journal.Entry {
	return journal.Entry{Event: &agentv1.Event{Seq: seq, Actor: "agent", Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{
		Content: &modelv1.ChatMessage{Id: text},
	}}}}
}

// answered is an event with a model's message.
func answered(seq int64, text string) journal.Entry {
	message := said(seq, text).Event.GetMessageAdded().GetContent()
	return journal.Entry{Event: &agentv1.Event{Seq: seq, Actor: "agent", Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{
		Content: &agentv1.ModelOutcomeContent{Output: &modelv1.ModelOutput{Choices: []*modelv1.Choice{{Message: message}}}},
	}}}}
}

// base: a journal begins from another's event, and the two continue independently.
func base(t *testing.T, s journal.Store) {
	trunk := mustCreate(t, s, journal.Creation{Name: name("trunk"), Entries: notes(1, "1", "2", "3")})
	trunk = mustAppend(t, s, trunk, notes(4, "4")...)
	branch := mustCreate(t, s, journal.Creation{Name: name("branch"), Base: journal.Base{Ref: trunk.Ref, Seq: 2}, Entries: notes(3, "b3")})
	assert.EqualValues(t, 3, branch.Seq)
	twig := mustCreate(t, s, journal.Creation{Name: name("twig"), Base: journal.Base{Ref: branch.Ref, Seq: 3}, Entries: notes(4, "t4")})
	early := mustCreate(t, s, journal.Creation{Name: name("early"), Base: journal.Base{Ref: twig.Ref, Seq: 1}, Entries: notes(2, "e2")})
	trunk = mustAppend(t, s, trunk, notes(5, "5")...)
	branch = mustAppend(t, s, branch, notes(4, "b4")...)
	for want, head := range map[string]journal.Head{
		"1 2 3 4 5": trunk, "1 2 b3 b4": branch, "1 2 b3 t4": twig, "1 e2": early,
	} {
		var all []string
		for event, err := range journal.All(t.Context(), s, head.Ref, 0) {
			require.NoError(t, err)
			assert.EqualValues(t, len(all)+1, event.GetSeq())
			assert.Equal(t, head.Name, event.GetJournal(), "an event is told as the journal's own")
			assert.LessOrEqual(t, event.GetEpoch(), head.Epoch)
			all = append(all, event.GetInfo().GetContent().GetDataJson())
		}
		assert.Equal(t, want, strings.Join(all, " "))
		// Pages of every size, from every place.
		for limit := 1; limit <= len(all); limit++ {
			for after := range len(all) {
				var paged []string
				for at := after; ; {
					page := texts(t, s, head.Ref, journal.Range{After: int64(at), Limit: limit})
					if len(page) == 0 {
						break
					}
					assert.LessOrEqual(t, len(page), limit)
					paged, at = append(paged, page...), at+len(page)
				}
				assert.Equal(t, all[after:], paged, "%s after %d by %d", head.Name, after, limit)
			}
		}
		opened, err := s.Open(t.Context(), head.Name)
		require.NoError(t, err)
		assert.Equal(t, head, opened)
	}

	// Content that is stored once may be in the base.
	talk := mustCreate(t, s, journal.Creation{Name: name("talk"), Entries: []journal.Entry{answered(1, "hello"), note(2, "between")}})
	again := said(3, "hello")
	again.Same = 1
	on := mustCreate(t, s, journal.Creation{Name: name("on"), Base: journal.Base{Ref: talk.Ref, Seq: 2}, Entries: []journal.Entry{again}})
	events, err := s.Read(t.Context(), on.Ref, journal.Range{After: 2})
	require.NoError(t, err)
	require.Len(t, events, 1)
	assert.Equal(t, "hello", events[0].GetMessageAdded().GetContent().GetId())

	// The first epoch of a journal is none before those of its base.
	_, err = s.Claim(t.Context(), journal.Claim{Replica: "r2", Limit: 100})
	require.NoError(t, err)
	adopted, err := s.Open(t.Context(), trunk.Name)
	require.NoError(t, err)
	require.Greater(t, adopted.Epoch, trunk.Epoch)
	late := mustCreate(t, s, journal.Creation{Name: name("late"), Base: journal.Base{Ref: trunk.Ref, Seq: 1}, Entries: notes(2, "l2")})
	assert.GreaterOrEqual(t, late.Epoch, adopted.Epoch)

	for why, c := range map[string]journal.Creation{
		"no such journal":   {Name: name("x1"), Base: journal.Base{Ref: 999, Seq: 1}, Entries: notes(2, "x")},
		"no such event":     {Name: name("x2"), Base: journal.Base{Ref: trunk.Ref, Seq: 6}, Entries: notes(7, "x")},
		"before the first":  {Name: name("x3"), Base: journal.Base{Ref: trunk.Ref}, Entries: notes(1, "x")},
		"another project":   {Name: "projects/q/runs/x4", Base: journal.Base{Ref: trunk.Ref, Seq: 1}, Entries: notes(2, "x")},
		"a gap after it":    {Name: name("x5"), Base: journal.Base{Ref: trunk.Ref, Seq: 1}, Entries: notes(3, "x")},
		"no place after it": {Name: name("x6"), Base: journal.Base{Ref: trunk.Ref, Seq: 1}, Entries: notes(1, "x")},
	} {
		c.Owner, c.Row = "r1", row()
		_, _, err := s.Create(t.Context(), c)
		require.Error(t, err, why)
		_, err = s.Open(t.Context(), c.Name)
		require.ErrorIs(t, err, journal.ErrNotFound, why)
	}
}

// baseDeleted: a base outlives its own journal, and is removed with the last journal that has it.
func baseDeleted(t *testing.T, s journal.Store) {
	over := row()
	over.Done = true
	trunk := mustCreate(t, s, journal.Creation{Name: name("trunk"), Entries: []journal.Entry{said(1, "kept"), said(2, "too")}, Row: over})
	branch := mustCreate(t, s, journal.Creation{Name: name("branch"), Base: journal.Base{Ref: trunk.Ref, Seq: 1}, Entries: notes(2, "b2"), Row: over})
	part := over
	part.Parent = trunk.Name
	child := mustCreate(t, s, journal.Creation{Name: name("child"), Row: part})
	newest := mustCreate(t, s, journal.Creation{Name: name("newest"), Row: over})
	purge := func() {
		t.Helper()
		for range 100 {
			more, err := s.Purge(t.Context())
			require.NoError(t, err)
			if !more {
				return
			}
		}
		require.Fail(t, "there is always more to purge")
	}
	stored := func() (n int) {
		_, err := s.Texts(t.Context(), journal.Place{}, func([]byte) error { n++; return nil })
		require.NoError(t, err)
		return n
	}
	only := func() int {
		t.Helper()
		events, err := s.Read(t.Context(), newest.Ref, journal.Range{})
		require.NoError(t, err)
		return len(events)
	}
	require.NoError(t, s.Delete(t.Context(), trunk.Name))
	purge()
	for _, gone := range []journal.Head{trunk, child} {
		_, err := s.Open(t.Context(), gone.Name)
		require.ErrorIs(t, err, journal.ErrNotFound)
		_, err = s.Read(t.Context(), gone.Ref, journal.Range{})
		require.ErrorIs(t, err, journal.ErrNotFound)
	}
	_, _, err := s.Create(t.Context(), journal.Creation{Name: name("late"), Owner: "r1", Base: journal.Base{Ref: trunk.Ref, Seq: 1}, Entries: notes(2, "x"), Row: over})
	require.ErrorIs(t, err, journal.ErrNotFound, "nothing new stands on it")
	events, err := s.Read(t.Context(), branch.Ref, journal.Range{Limit: 1})
	require.NoError(t, err)
	require.Len(t, events, 1)
	assert.Equal(t, "kept", events[0].GetMessageAdded().GetContent().GetId())
	require.Greater(t, stored(), 2)

	require.NoError(t, s.Delete(t.Context(), branch.Name))
	purge()
	assert.LessOrEqual(t, stored(), 2*only(), "of both nothing is left: an event has its row and at most one content")
}
