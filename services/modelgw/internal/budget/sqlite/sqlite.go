// Package sqlite keeps budgets in a SQLite database that others may share. Every change is one group-committed write.
package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	store "github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
)

// schema lists the steps, which are append-only.
var schema = []string{`
CREATE TABLE modelgw_budgets (
	scope        TEXT PRIMARY KEY,
	tokens       INTEGER NOT NULL DEFAULT 0,
	cost         REAL    NOT NULL DEFAULT 0, -- dollars
	cost_partial INTEGER NOT NULL DEFAULT 0,
	change       BLOB                        -- budget.Change as JSON
) WITHOUT ROWID;`}

// Store implements [budget.Store].
type Store struct{ db *store.DB }

var _ budget.Store = (*Store)(nil)

// New returns the store in db, and makes or migrates its table. db stays the caller's to close.
func New(ctx context.Context, db *store.DB) (*Store, error) {
	if err := db.Migrate(ctx, "modelgw/budget", schema); err != nil {
		return nil, err
	}
	return &Store{db}, nil
}

// Load implements [budget.Store].
func (s *Store) Load(ctx context.Context) (all []budget.Kept, err error) {
	err = s.db.Read(ctx, func(v *store.View) error {
		for row, err := range v.Query("SELECT scope, tokens, cost, cost_partial, change FROM modelgw_budgets") {
			if err != nil {
				return err
			}
			var kept budget.Kept
			var change []byte
			if err := row.Scan(&kept.Scope, &kept.Tokens, &kept.Cost, &kept.CostPartial, &change); err != nil {
				return err
			}
			if change != nil {
				if err := json.Unmarshal(change, &kept.Change); err != nil {
					return fmt.Errorf("the budget of %s: %w", kept.Scope, err)
				}
			}
			all = append(all, kept)
		}
		return nil
	})
	return all, err
}

// SaveSpent implements [budget.Store].
func (s *Store) SaveSpent(ctx context.Context, spent []budget.Spent) error {
	return s.db.Write(ctx, func(tx *store.Tx) error {
		for _, one := range spent {
			const save = `INSERT INTO modelgw_budgets (scope, tokens, cost, cost_partial) VALUES (?1, ?2, ?3, ?4)
				ON CONFLICT (scope) DO UPDATE SET tokens = ?2, cost = ?3, cost_partial = ?4`
			if _, err := tx.Exec(save, one.Scope, one.Tokens, one.Cost, one.CostPartial); err != nil {
				return err
			}
		}
		return nil
	})
}

// SaveChange implements [budget.Store].
func (s *Store) SaveChange(ctx context.Context, scope string, change *budget.Change) error {
	var document []byte
	if change != nil {
		var err error
		if document, err = json.Marshal(change); err != nil {
			return err
		}
	}
	return s.db.Write(ctx, func(tx *store.Tx) error {
		const save = "INSERT INTO modelgw_budgets (scope, change) VALUES (?1, ?2) ON CONFLICT (scope) DO UPDATE SET change = ?2"
		_, err := tx.Exec(save, scope, document)
		return err
	})
}
