package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effecttest"
	store "github.com/evalfleet/evalfleet/pkg/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ledger is a Ledger that knows its file.
type ledger struct {
	*Ledger
	path string
}

func open(t *testing.T, path string) *ledger {
	t.Helper()
	db, err := store.Open(t.Context(), path, store.Options{Readers: 1})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	l, err := New(t.Context(), db, "modelgw")
	require.NoError(t, err)
	return &ledger{Ledger: l, path: path}
}

func TestLedger(t *testing.T) {
	t.Parallel()
	effecttest.Run(t, effecttest.Harness{
		New: func(t *testing.T) effect.Ledger { return open(t, filepath.Join(t.TempDir(), "effects.db")) },
		AfterCrash: func(t *testing.T, l effect.Ledger) effect.Ledger {
			// What a killed process leaves is the files as they are while the database is open.
			from, to := l.(*ledger).path, filepath.Join(t.TempDir(), "effects.db")
			for _, suffix := range []string{"", "-wal"} {
				body, err := os.ReadFile(from + suffix)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(to+suffix, body, 0o600))
			}
			return open(t, to)
		},
	})
}

func TestServicesShareADatabase(t *testing.T) {
	t.Parallel()
	l := open(t, filepath.Join(t.TempDir(), "effects.db"))
	other, err := New(t.Context(), l.db, "toolexec")
	require.NoError(t, err)
	key := effect.Key{Project: "p", ID: "1"}
	_, started, err := l.Claim(t.Context(), key, effect.Hash{}, "a", 0)
	require.NoError(t, err)
	assert.True(t, started)
	_, err = other.Lookup(t.Context(), key)
	assert.ErrorIs(t, err, effect.ErrUnknown)
}

func TestTableNameIsChecked(t *testing.T) {
	t.Parallel()
	l := open(t, filepath.Join(t.TempDir(), "effects.db"))
	for _, name := range []string{"", "Effects", "a b", "a;drop table x", "1a"} {
		_, err := New(t.Context(), l.db, name)
		assert.Error(t, err, name)
	}
}

func TestExpireGoesThroughAllPages(t *testing.T) {
	t.Parallel()
	l := open(t, filepath.Join(t.TempDir(), "effects.db"))
	const rows = 2*expirePage + 7
	require.NoError(t, l.db.Write(t.Context(), func(tx *store.Tx) error {
		now := time.Now().UnixNano()
		for i := range rows {
			if _, err := tx.Exec(l.q.insert, "p", fmt.Sprint(i), nil, effect.Cancelled, "", now); err != nil {
				return err
			}
		}
		return nil
	}))
	n, err := l.Expire(t.Context(), time.Now().Add(time.Second), time.Time{})
	require.NoError(t, err)
	assert.Equal(t, rows, n)
}

func TestReleasedAndExpiredBodiesAreDeleted(t *testing.T) {
	t.Parallel()
	l := open(t, filepath.Join(t.TempDir(), "effects.db"))
	bodies := func() (n int) {
		require.NoError(t, l.db.Read(t.Context(), func(v *store.View) error {
			return v.QueryRow("SELECT count(*) FROM modelgw_body").Scan(&n)
		}))
		return n
	}
	for _, id := range []string{"released", "expired"} {
		key := effect.Key{Project: "p", ID: id}
		_, _, err := l.Claim(t.Context(), key, effect.Hash{}, "a", 0)
		require.NoError(t, err)
		require.NoError(t, l.Finish(t.Context(), key, "a", effect.Outcome{State: effect.Done, Body: []byte("x")}))
	}
	assert.Equal(t, 2, bodies())
	require.NoError(t, l.Release(t.Context(), effect.Key{Project: "p", ID: "released"}))
	assert.Equal(t, 1, bodies())
	_, err := l.Expire(t.Context(), time.Now().Add(time.Second), time.Time{})
	require.NoError(t, err)
	assert.Zero(t, bodies())
}

func TestLedgersOfEarlierVersionsAreMigrated(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "effects.db"), store.Options{Readers: 1})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(t.Context(), "effect/effects", schema[:1]))
	require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(`INSERT INTO effects (project, id, hash, state, owner, reissues, claimed_at, changed_at) VALUES ('p', 'run/1', ?, 1, 'dead/1', 1, 1, 1)`, make([]byte, 32))
		return err
	}))
	l, err := New(t.Context(), db, "effects")
	require.NoError(t, err)
	key := effect.Key{Project: "p", ID: "run/1"}
	rec, err := l.Reclaim(t.Context(), key, "dead/1", "heir/1")
	require.NoError(t, err)
	assert.Equal(t, 2, rec.Reissues)
	assert.Zero(t, rec.Yields)
	require.NoError(t, l.Yield(t.Context(), "heir/1", key))
	rec, started, err := l.Claim(t.Context(), key, effect.Hash{}, "heir/2", 0)
	require.NoError(t, err)
	assert.True(t, started)
	assert.Equal(t, 1, rec.Yields)
}
