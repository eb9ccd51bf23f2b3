package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

const versionTable = `CREATE TABLE IF NOT EXISTS schema_version (
	namespace TEXT PRIMARY KEY,
	version   INTEGER NOT NULL
) WITHOUT ROWID`

// Migrate brings the tables of one namespace up to date: it runs, in one transaction, the steps that this file has not
// had. A step is one or more statements. Steps are append-only; a step that has run anywhere is never edited. It fails
// with [ErrNewerSchema] if the file has had more steps than are passed.
func (db *DB) Migrate(ctx context.Context, namespace string, steps []string) error {
	return db.Write(ctx, func(tx *Tx) error {
		var version int
		err := tx.QueryRow("SELECT version FROM schema_version WHERE namespace = ?", namespace).Scan(&version)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("sqlite: migrate %s: %w", namespace, err)
		}
		if version > len(steps) {
			return fmt.Errorf("sqlite: migrate %s: %w: file has version %d, program %d", namespace, ErrNewerSchema, version, len(steps))
		}
		if version == len(steps) {
			return nil
		}
		for i, step := range steps[version:] {
			if err := tx.script(step); err != nil {
				return fmt.Errorf("sqlite: migrate %s: step %d: %w", namespace, version+i+1, err)
			}
		}
		_, err = tx.Exec(`INSERT INTO schema_version (namespace, version) VALUES (?1, ?2)
			ON CONFLICT (namespace) DO UPDATE SET version = ?2`, namespace, len(steps))
		return err
	})
}
