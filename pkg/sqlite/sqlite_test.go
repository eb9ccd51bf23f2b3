package sqlite

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a new database with one table and closes it with the test.
func open(t *testing.T, opts Options) *DB {
	t.Helper()
	db := reopen(t, filepath.Join(t.TempDir(), "test.db"), opts)
	require.NoError(t, db.Migrate(t.Context(), "test", []string{
		`CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
		 CREATE TABLE child (item INTEGER REFERENCES item (id) DEFERRABLE INITIALLY DEFERRED)`,
	}))
	return db
}

func reopen(t *testing.T, path string, opts Options) *DB {
	t.Helper()
	db, err := Open(t.Context(), path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

// insert returns a function for Write.
func insert(name string) func(*Tx) error {
	return func(tx *Tx) error {
		_, err := tx.Exec("INSERT INTO item (name) VALUES (?)", name)
		return err
	}
}

// names returns what is stored, in order.
func names(t *testing.T, db *DB) []string {
	t.Helper()
	var got []string
	require.NoError(t, db.Read(t.Context(), func(v *View) error {
		for row, err := range v.Query("SELECT name FROM item ORDER BY id") {
			if err != nil {
				return err
			}
			var name string
			if err := row.Scan(&name); err != nil {
				return err
			}
			got = append(got, name)
		}
		return nil
	}))
	return got
}

func TestWritesSurviveReopening(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	steps := []string{"CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)"}
	first := reopen(t, path, Options{})
	require.NoError(t, first.Migrate(t.Context(), "test", steps))
	require.NoError(t, first.Write(t.Context(), insert("a")))
	require.NoError(t, first.Close())

	second := reopen(t, path, Options{})
	require.NoError(t, second.Migrate(t.Context(), "test", steps))
	assert.Equal(t, []string{"a"}, names(t, second))
}

func TestFilesBelongToTheirOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "test.db")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	db := reopen(t, path, Options{})
	require.NoError(t, db.Migrate(t.Context(), "test", []string{"CREATE TABLE item (name TEXT)"}))

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3, "main file, log and shared memory")
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o600), info.Mode(), e.Name())
	}
}

func TestPathMayHoldAnyCharacter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?c#d%41&e.db")
	db := reopen(t, path, Options{})
	require.NoError(t, db.Migrate(t.Context(), "test", []string{"CREATE TABLE item (name TEXT)"}))
	_, err := os.Stat(path)
	assert.NoError(t, err)
}

func TestOpenNamesTheFileItCannotOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing", "test.db")
	_, err := Open(t.Context(), path, Options{})
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, path)

	garbage := filepath.Join(t.TempDir(), "garbage.db")
	require.NoError(t, os.WriteFile(garbage, []byte("this is no database, and long enough to be seen as none"), 0o600))
	_, err = Open(t.Context(), garbage, Options{})
	assert.ErrorContains(t, err, garbage)
	assert.ErrorContains(t, err, "put a copy of it in its place, or move it away")
}

func TestDurabilitySettingsHold(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	want := map[string]any{
		"journal_mode": "wal", "synchronous": int64(2), "page_size": int64(8192), "wal_autocheckpoint": int64(4000), "foreign_keys": int64(1),
	}
	require.NoError(t, db.Write(t.Context(), func(tx *Tx) error {
		for pragma, value := range want {
			var got any
			if err := tx.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil {
				return err
			}
			assert.Equal(t, value, got, pragma)
		}
		return nil
	}))
}
