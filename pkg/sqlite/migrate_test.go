package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	db := reopen(t, filepath.Join(t.TempDir(), "test.db"), Options{})
	first := "CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1)"
	second := "ALTER TABLE a ADD COLUMN y INTEGER NOT NULL DEFAULT 7"
	read := func(query string) (n int) {
		require.NoError(t, db.Read(t.Context(), func(v *View) error { return v.QueryRow(query).Scan(&n) }))
		return n
	}

	require.NoError(t, db.Migrate(t.Context(), "one", []string{first}))
	require.NoError(t, db.Migrate(t.Context(), "one", []string{first}), "a step runs once")
	assert.Equal(t, 1, read("SELECT count(*) FROM a"))

	require.NoError(t, db.Migrate(t.Context(), "one", []string{first, second}), "new steps follow the old")
	assert.Equal(t, 7, read("SELECT y FROM a"))

	require.NoError(t, db.Migrate(t.Context(), "two", []string{"CREATE TABLE b (x INTEGER)"}), "namespaces count for themselves")
	assert.Equal(t, 0, read("SELECT count(*) FROM b"))

	err := db.Migrate(t.Context(), "one", []string{first})
	assert.ErrorIs(t, err, ErrNewerSchema)
}

func TestFailedMigrationLeavesNothing(t *testing.T) {
	t.Parallel()
	db := reopen(t, filepath.Join(t.TempDir(), "test.db"), Options{})
	good := "CREATE TABLE a (x INTEGER)"
	err := db.Migrate(t.Context(), "one", []string{good, "CREATE TABLE b (x INTEGER); CREATE MISTAKE"})
	assert.ErrorContains(t, err, "one: step 2")
	require.NoError(t, db.Migrate(t.Context(), "one", []string{good, "CREATE TABLE b (x INTEGER)"}), "from the first step again")
}
