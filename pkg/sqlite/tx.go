package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"iter"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Row is one row of a result.
type Row interface {
	// Scan copies the columns into dest as [sql.Rows.Scan] does.
	Scan(dest ...any) error
}

// View is the argument of a function passed to [DB.Read]: the database as it was when the function's first query began.
// It belongs to that function and its goroutine, and fails with [ErrTxDone] afterwards.
//
// Statements are prepared once per connection and cached by their text, so the text should be a constant and values
// should be arguments.
type View struct {
	ctx  context.Context
	conn *conn
	// changed is set once a statement may have changed something.
	changed bool
	// broken is the failure that ended the transaction under the function, or ErrTxDone after its end.
	broken error
}

// Tx is the argument of a function passed to [DB.Write]: the database with the changes of the functions before it in
// the same transaction, and its own. The transaction itself is the writer's: a function runs no COMMIT or ROLLBACK, and
// none of the conflict clauses OR ROLLBACK and OR FAIL.
type Tx struct {
	View
}

// Query runs a query and yields its rows. A failure is yielded as the last pair. A row is valid until the next one.
func (v *View) Query(query string, args ...any) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		rows, release, err := v.query(query, args)
		if err != nil {
			yield(nil, v.note(err))
			return
		}
		defer release()
		for rows.Next() {
			if !yield(rows, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, v.note(err))
		}
	}
}

// QueryRow runs a query and returns its first row. The row's Scan runs the query, and fails with [sql.ErrNoRows] if
// there is no row.
func (v *View) QueryRow(query string, args ...any) Row {
	return firstRow{view: v, query: query, args: args}
}

type firstRow struct {
	view  *View
	query string
	args  []any
}

func (r firstRow) Scan(dest ...any) error {
	for row, err := range r.view.Query(r.query, r.args...) {
		if err != nil {
			return err
		}
		return row.Scan(dest...)
	}
	return sql.ErrNoRows
}

// Exec runs one statement that changes something. Its result has the number of affected rows and the last row id.
func (tx *Tx) Exec(query string, args ...any) (sql.Result, error) {
	if tx.broken != nil {
		return nil, tx.broken
	}
	s, err := tx.conn.prepareExec(tx.ctx, query)
	if err != nil {
		return nil, tx.note(err)
	}
	res, err := tx.conn.run(tx.ctx, s, args)
	if err != nil {
		return nil, tx.note(err)
	}
	if s.effect == counted {
		n, err := res.RowsAffected()
		if err != nil {
			return nil, tx.note(err)
		}
		tx.changed = tx.changed || n > 0
	} else {
		tx.changed = true
	}
	return res, nil
}

// script runs statements separated by semicolons, once.
func (tx *Tx) script(statements string) error {
	if tx.broken != nil {
		return tx.broken
	}
	tx.changed = true
	_, err := tx.conn.sql.ExecContext(tx.ctx, statements)
	return tx.note(err)
}

// query starts a query. A statement whose rows are being read by a caller is prepared again for this use.
func (v *View) query(query string, args []any) (rows *sql.Rows, release func(), err error) {
	if v.broken != nil {
		return nil, nil, v.broken
	}
	s, err := v.conn.prepare(v.ctx, query)
	if err != nil {
		return nil, nil, err
	}
	if s.effect != none {
		v.changed = true
	}
	if s.iterating {
		rows, err = v.conn.sql.QueryContext(v.ctx, query, args...)
		if err != nil {
			return nil, nil, err
		}
		return rows, func() { _ = rows.Close() }, nil
	}
	if rows, err = s.QueryContext(v.ctx, args...); err != nil {
		return nil, nil, err
	}
	s.iterating = true
	return rows, func() {
		_ = rows.Close()
		s.iterating = false
	}, nil
}

// note records a failure of the database itself. After one SQLite may have rolled the transaction back already, and a
// further statement would then run, and commit, outside of any.
func (v *View) note(err error) error {
	if v.broken == nil && breaksTransaction(err) {
		v.broken = err
	}
	return err
}

// breaksTransaction distinguishes failures of the database (https://www.sqlite.org/lang_transaction.html, "Response To
// Errors Within A Transaction") from those of one statement, which leave the transaction intact.
func breaksTransaction(err error) bool {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE:
		return false
	default:
		return true
	}
}
