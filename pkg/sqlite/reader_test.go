package sqlite

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestReadSeesOneState(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	count := func(v *View) (n int) {
		require.NoError(t, v.QueryRow("SELECT count(*) FROM item").Scan(&n))
		return n
	}
	require.NoError(t, db.Write(t.Context(), insert("a")))
	require.NoError(t, db.Read(t.Context(), func(v *View) error {
		assert.Equal(t, 1, count(v), "a write is seen once it is answered")
		require.NoError(t, db.Write(t.Context(), insert("b")))
		assert.Equal(t, 1, count(v), "one state for the whole function")
		return nil
	}))
	require.NoError(t, db.Read(t.Context(), func(v *View) error {
		assert.Equal(t, 2, count(v))
		return nil
	}))
}

func TestReadCannotWrite(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	err := db.Read(t.Context(), func(v *View) error {
		return v.QueryRow("INSERT INTO item (name) VALUES ('a') RETURNING id").Scan(new(int))
	})
	assert.ErrorContains(t, err, "readonly")
}

func TestOneQueryMayRunInsideItself(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	for _, n := range []string{"a", "b", "c"} {
		require.NoError(t, db.Write(t.Context(), insert(n)))
	}
	const query = "SELECT name FROM item ORDER BY id"
	pairs := func(v *View) (got []string, err error) {
		for outer, err := range v.Query(query) {
			if err != nil {
				return nil, err
			}
			var a string
			if err := outer.Scan(&a); err != nil {
				return nil, err
			}
			for inner, err := range v.Query(query) {
				if err != nil {
					return nil, err
				}
				var b string
				if err := inner.Scan(&b); err != nil {
					return nil, err
				}
				got = append(got, a+b)
			}
		}
		return got, nil
	}
	want := []string{"aa", "ab", "ac", "ba", "bb", "bc", "ca", "cb", "cc"}
	require.NoError(t, db.Read(t.Context(), func(v *View) error {
		got, err := pairs(v)
		assert.Equal(t, want, got)
		return err
	}))
	require.NoError(t, db.Write(t.Context(), func(tx *Tx) error {
		got, err := pairs(&tx.View)
		assert.Equal(t, want, got)
		return err
	}))
}

func TestQueryRowWithoutRow(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	require.NoError(t, db.Read(t.Context(), func(v *View) error {
		assert.ErrorIs(t, v.QueryRow("SELECT id FROM item").Scan(new(int)), sql.ErrNoRows)
		assert.ErrorContains(t, v.QueryRow("SELECT nothing").Scan(new(int)), "nothing")
		return nil
	}))
}

func TestReadWaitsForAFreeConnection(t *testing.T) {
	t.Parallel()
	db := open(t, Options{Readers: 1})
	require.NoError(t, db.Read(t.Context(), func(*View) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := db.Read(ctx, func(*View) error { return nil })
		assert.ErrorIs(t, err, context.Canceled)
		return nil
	}))
	assert.NoError(t, db.Read(t.Context(), func(*View) error { return nil }))
}

func TestContextEndsARead(t *testing.T) {
	t.Parallel()
	db := open(t, Options{Readers: 1})
	ctx, cancel := context.WithCancel(t.Context())
	err := db.Read(ctx, func(v *View) error {
		const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
		for _, err := range v.Query(endless) {
			cancel()
			if err != nil {
				return err
			}
		}
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, names(t, db), "the connection serves the next")
}

func TestViewIsOverWithItsFunction(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	var kept *View
	require.NoError(t, db.Read(t.Context(), func(v *View) error { kept = v; return nil }))
	assert.Equal(t, ErrTxDone, kept.QueryRow("SELECT 1").Scan(new(int)))
}

func TestCloseWaitsForReads(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	require.NoError(t, db.Write(t.Context(), insert("a")))
	closed := make(chan error, 1)
	require.NoError(t, db.Read(t.Context(), func(v *View) error {
		go func() { closed <- db.Close() }()
		waittest.Hold(t, db.readers.closing)
		return v.QueryRow("SELECT name FROM item").Scan(new(string))
	}))
	assert.NoError(t, waittest.For(t, closed, "the close to return"))
}
