package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/effect"
	store "github.com/evalfleet/evalfleet/pkg/sqlite"
)

func database(t *testing.T) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "effects.db"), store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

func done(t *testing.T, l *Ledger, key effect.Key, body string) {
	t.Helper()
	_, _, err := l.Claim(t.Context(), key, effect.Hash{1}, "me", 0)
	require.NoError(t, err)
	require.NoError(t, l.Finish(t.Context(), key, "me", effect.Outcome{State: effect.Done, Body: []byte(body)}))
}

// Two replicas may release the same runs: what one has read may be gone, and its places may be those of other effects.
func TestAReleaseDeletesNothingThatCameInItsPlace(t *testing.T) {
	t.Parallel()
	l, err := New(t.Context(), database(t), "effects")
	require.NoError(t, err)
	ended, other := effect.Key{Project: "p", ID: "ended/1"}, effect.Key{Project: "p", ID: "other/1"}
	done(t, l, ended, "of the ended run")
	read, err := l.ofRuns(t.Context(), "p", []string{"ended"})
	require.NoError(t, err)
	require.Len(t, read, 1)
	require.NoError(t, l.ReleaseRuns(t.Context(), "p", "ended"))

	done(t, l, other, "of another run")
	now, err := l.ofRuns(t.Context(), "p", []string{"other"})
	require.NoError(t, err)
	require.Equal(t, read[0].seq, now[0].seq, "the database uses a place again")
	require.NoError(t, l.delete(t.Context(), "p", read))
	rec, err := l.Lookup(t.Context(), other)
	require.NoError(t, err)
	assert.Equal(t, "of another run", string(rec.Body))
}

func TestResultsOfTheEarlierSchemaStay(t *testing.T) {
	t.Parallel()
	db := database(t)
	require.NoError(t, db.Migrate(t.Context(), "effect/effects", schema[:len(schema)-1]))
	insert := func(query string, args ...any) {
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec(query, args...)
			return err
		}))
	}
	for seq, id := range []string{"r/open", "r/done", "r/failed"} {
		state := []effect.State{effect.Running, effect.Done, effect.Failed}[seq]
		insert(`INSERT INTO effects (seq, project, id, hash, state, owner, claimed_at, changed_at) VALUES (?, 'p', ?, zeroblob(32), ?, 'me', 1, 1)`, seq+1, id, state)
		if state != effect.Running {
			insert(`INSERT INTO effects_body (seq, body) VALUES (?, ?)`, seq+1, []byte(strings.ToUpper(id)))
		}
	}
	l, err := New(t.Context(), db, "effects")
	require.NoError(t, err)
	for id, body := range map[string]string{"r/open": "", "r/done": "R/DONE", "r/failed": "R/FAILED"} {
		rec, err := l.Lookup(t.Context(), effect.Key{Project: "p", ID: id})
		require.NoError(t, err)
		assert.Equal(t, body, string(rec.Body), id)
	}
	require.NoError(t, l.Finish(t.Context(), effect.Key{Project: "p", ID: "r/open"}, "me", effect.Outcome{State: effect.Done, Body: []byte("new")}))
	rec, err := l.Lookup(t.Context(), effect.Key{Project: "p", ID: "r/open"})
	require.NoError(t, err)
	assert.Equal(t, "new", string(rec.Body))
}
