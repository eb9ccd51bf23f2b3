package sqlite

import (
	"fmt"
	"iter"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal/journaltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openDB(t testing.TB) *sqlite.DB {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), sqlite.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

// countFold returns a row with the number of events.
func countFold(_ journal.Head, events iter.Seq2[*agentv1.Event, error]) (journal.Row, error) {
	row := journal.Row{Kind: journal.KindRun, Labels: map[string]string{"made": "again"}}
	for _, err := range events {
		if err != nil {
			return row, err
		}
		row.State++
	}
	row.Done = row.State > 1
	return row, nil
}

func openStore(t testing.TB, db *sqlite.DB) *Store {
	s, err := Open(t.Context(), db, countFold)
	require.NoError(t, err)
	return s
}

func TestSuite(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(t *testing.T) journal.Store { return openStore(t, openDB(t)) })
}

// TestProjectionsAreMadeAgain drops what can be dropped.
func TestProjectionsAreMadeAgain(t *testing.T) {
	t.Parallel()
	for _, damage := range []string{"DROP TABLE view_journal", "DROP TABLE view_label", "DROP INDEX view_journal_reason", "ALTER TABLE view_journal ADD COLUMN x TEXT"} {
		db := openDB(t)
		s := openStore(t, db)
		create := func(id string, n int) {
			var entries []journal.Entry
			for i := range n {
				entries = append(entries, journal.Entry{Event: &agentv1.Event{Seq: int64(i + 1)}})
			}
			_, _, err := s.Create(t.Context(), journal.Creation{Name: "projects/p/runs/" + id, Entries: entries, Row: journal.Row{Kind: journal.KindRun}})
			require.NoError(t, err)
		}
		create("a", 1)
		create("b", 3)
		require.NoError(t, db.Write(t.Context(), func(tx *sqlite.Tx) error { _, err := tx.Exec(damage); return err }))

		s = openStore(t, db)
		all, err := s.List(t.Context(), journal.Query{Labels: map[string]string{"made": "again"}})
		require.NoError(t, err)
		require.Len(t, all, 2, damage)
		assert.Equal(t, int32(3), all[0].State)
		assert.True(t, all[0].Done)
		assert.Equal(t, int32(1), all[1].State)
		assert.False(t, all[1].Done)
		create("c", 1)
		again := openStore(t, db)
		all, err = again.List(t.Context(), journal.Query{})
		require.NoError(t, err)
		assert.Equal(t, int32(0), all[0].State, "what is whole is left alone")
	}
}

// A deletion that a crash interrupts never shows half of an evaluation, and the next process continues it.
func TestADeletionGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	const eval, runs = "projects/p/evals/e", 120
	for steps := 0; ; steps++ {
		db := openDB(t)
		s := openStore(t, db)
		done := func(name, parent string, kind journal.Kind) {
			entries := []journal.Entry{{Event: &agentv1.Event{Seq: 1}}}
			_, _, err := s.Create(t.Context(), journal.Creation{Name: name, Entries: entries, Row: journal.Row{Kind: kind, Parent: parent, Done: true}})
			require.NoError(t, err)
		}
		done(eval, "", journal.KindEval)
		for i := range runs {
			done("projects/p/runs/r"+strconv.Itoa(i), eval, journal.KindRun)
		}
		done("projects/p/runs/kept", "", journal.KindRun)
		require.NoError(t, s.Delete(t.Context(), eval))
		more := true
		for range steps {
			var err error
			more, err = s.Purge(t.Context())
			require.NoError(t, err)
		}
		s = openStore(t, db) // as the process after a crash does
		_, err := s.Open(t.Context(), eval)
		require.ErrorIs(t, err, journal.ErrNotFound)
		evals, err := s.List(t.Context(), journal.Query{Kind: journal.KindEval})
		require.NoError(t, err)
		require.Empty(t, evals)
		for again := true; again; {
			again, err = s.Purge(t.Context())
			require.NoError(t, err)
		}
		left := map[string]int{}
		require.NoError(t, db.Read(t.Context(), func(v *sqlite.View) error {
			for _, table := range []string{"journal", "journal_event", "journal_inbox", "journal_deleted", "view_journal"} {
				var n int
				if err := v.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
					return err
				}
				left[table] = n
			}
			return nil
		}))
		require.Equal(t, map[string]int{"journal": 1, "journal_event": 1, "journal_inbox": 0, "journal_deleted": 0, "view_journal": 1}, left, "after %d steps", steps)
		if !more {
			return
		}
		steps += 79 // some places of many
	}
}

// Pages of what was deleted are used again: the file does not grow with what comes and goes.
func TestDeletedPagesAreUsedAgain(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	s := openStore(t, db)
	pages := func() (n int) {
		require.NoError(t, db.Read(t.Context(), func(v *sqlite.View) error { return v.QueryRow("PRAGMA page_count").Scan(&n) }))
		return n
	}
	round := func(n int) {
		var entries []journal.Entry
		for i := range 300 {
			text := strings.Repeat(strconv.Itoa(n*1000+i), 300)
			entries = append(entries, journal.Entry{Event: &agentv1.Event{Seq: int64(i + 1), Kind: &agentv1.Event_Info{Info: &agentv1.Info{Content: &agentv1.InfoContent{DataJson: text}}}}})
		}
		name := "projects/p/runs/r" + strconv.Itoa(n)
		_, _, err := s.Create(t.Context(), journal.Creation{Name: name, Entries: entries, Row: journal.Row{Kind: journal.KindRun, Done: true}})
		require.NoError(t, err)
		require.NoError(t, s.Delete(t.Context(), name))
		for more := true; more; {
			more, err = s.Purge(t.Context())
			require.NoError(t, err)
		}
	}
	round(1)
	after := pages()
	for n := range 5 {
		round(n + 2)
	}
	assert.LessOrEqual(t, pages(), after+after/4)
}

// BenchmarkAppend appends three events (2 KiB in all) to one of 256 journals.
func BenchmarkAppend(b *testing.B) {
	db := openDB(b)
	s := openStore(b, db)
	const journals = 256
	text := string(make([]byte, 1900))
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range journals {
		wg.Go(func() {
			event := func(seq int64, text string) journal.Entry {
				return journal.Entry{Event: &agentv1.Event{Seq: seq, Kind: &agentv1.Event_Info{Info: &agentv1.Info{Content: &agentv1.InfoContent{DataJson: text}}}}}
			}
			head, _, err := s.Create(b.Context(), journal.Creation{Name: "projects/p/runs/" + strconv.Itoa(i), Entries: []journal.Entry{event(1, "")}, Row: journal.Row{Kind: 1}})
			for err == nil && left.Add(-1) >= 0 {
				err = s.Append(b.Context(), journal.Append{Head: head, Entries: []journal.Entry{event(head.Seq+1, text), event(head.Seq+2, "x"), event(head.Seq+3, "y")}})
				head.Seq += 3
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
}

// TestADamagedContentStopsNoOtherText has one damaged content among others that are large.
func TestADamagedContentStopsNoOtherText(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	s := openStore(t, db)
	large := func(seq int64, text string) journal.Entry {
		return journal.Entry{Event: &agentv1.Event{Seq: seq, Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{
			Content: chat.User(strings.Repeat(text, 2000)),
		}}}}
	}
	const name = "projects/p/runs/a"
	head, _, err := s.Create(t.Context(), journal.Creation{Name: name, Entries: []journal.Entry{large(1, "one "), large(2, "two "), large(3, "three ")}, Row: journal.Row{Kind: journal.KindRun}})
	require.NoError(t, err)
	require.NoError(t, db.Write(t.Context(), func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`UPDATE journal_blob SET body = 'damaged' WHERE hash = (SELECT hash FROM journal_event WHERE seq = 2)`)
		return err
	}))
	var all strings.Builder
	_, err = s.Texts(t.Context(), journal.Place{}, func(text []byte) error { _, _ = all.Write(text); return nil })
	require.NoError(t, err)
	for _, text := range []string{"one one", "damaged", "three three"} {
		assert.Contains(t, all.String(), text)
	}
	events, err := s.Read(t.Context(), head.Ref, journal.Range{})
	require.NoError(t, err)
	assert.Len(t, events, 1, "those before it")
	_, err = s.Read(t.Context(), head.Ref, journal.Range{After: 1})
	assert.ErrorIs(t, err, journal.ErrUnreadable)
}

// TestAListEndsWhereItsBytesDo has rows of a mebibyte. A page holds at least two of several rows, so that it shows
// whether there are more.
func TestAListEndsWhereItsBytesDo(t *testing.T) {
	t.Parallel()
	s := openStore(t, openDB(t))
	for i := range 5 {
		_, _, err := s.Create(t.Context(), journal.Creation{
			Name: fmt.Sprint("projects/p/runs/r", i), Row: journal.Row{Kind: journal.KindRun, View: make([]byte, 1<<20)},
			Entries: []journal.Entry{{Event: &agentv1.Event{Seq: 1, Kind: &agentv1.Event_Info{Info: &agentv1.Info{}}}}},
		})
		require.NoError(t, err)
	}
	for bytes, want := range map[int]int{0: 5, 1: 2, 2 << 20: 3, 5 << 20: 5} {
		rows, err := s.List(t.Context(), journal.Query{Bytes: bytes})
		require.NoError(t, err)
		assert.Len(t, rows, want, "of %d bytes", bytes)
	}
}

// TestADamagedJournalIsUnreadable has rows of a journal lost or changed, so that an event lacks what it refers to.
func TestADamagedJournalIsUnreadable(t *testing.T) {
	t.Parallel()
	large := chat.Assistant(strings.Repeat("the answer ", 1000))
	entries := []journal.Entry{
		{Event: &agentv1.Event{Seq: 1, Kind: &agentv1.Event_Info{Info: &agentv1.Info{}}}},
		{Event: &agentv1.Event{Seq: 2, Kind: &agentv1.Event_Info{Info: &agentv1.Info{}}}},
		{Event: &agentv1.Event{Seq: 3, Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{
			Content: &agentv1.ModelOutcomeContent{Output: &modelv1.ModelOutput{Choices: []*modelv1.Choice{{Message: large}}}},
		}}}},
		{Event: &agentv1.Event{Seq: 4, Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Content: large}}}, Same: 3},
	}
	for name, damage := range map[string]string{
		"an event that is none":          `UPDATE journal_event SET body = 'damaged' WHERE seq = 2`,
		"no content":                     `DELETE FROM journal_blob`,
		"no source":                      `DELETE FROM journal_event WHERE seq = 3`,
		"an event before is lost":        `DELETE FROM journal_event WHERE seq = 2`,
		"a source that is not there yet": `UPDATE journal_event SET same = 9 WHERE seq = 4`,
		"a source that is itself":        `UPDATE journal_event SET same = 4 WHERE seq = 4`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openDB(t)
			s := openStore(t, db)
			head, _, err := s.Create(t.Context(), journal.Creation{Name: "projects/p/runs/a", Entries: entries, Row: journal.Row{Kind: journal.KindRun}})
			require.NoError(t, err)
			require.NoError(t, db.Write(t.Context(), func(tx *sqlite.Tx) error { _, err := tx.Exec(damage); return err }))
			read := 0
			for _, err = range journal.All(t.Context(), s, head.Ref, 0) {
				if err == nil {
					read++
				}
			}
			assert.ErrorIs(t, err, journal.ErrUnreadable)
			assert.Positive(t, read, "what was before the damage")
			for after := range int64(4) {
				_, _ = s.Read(t.Context(), head.Ref, journal.Range{After: after}) // No place to read from panics.
			}
		})
	}
}
