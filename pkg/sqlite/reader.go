package sqlite

import (
	"context"
	"database/sql"
	"errors"
)

// readers is the pool of read-only connections.
type readers struct {
	db      *sql.DB
	idle    chan *conn
	closing chan struct{}
}

func openReaders(ctx context.Context, dsn string, n int) (*readers, error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	r := &readers{db: db, idle: make(chan *conn, n), closing: make(chan struct{})}
	for range n {
		c, err := newConn(ctx, db)
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		r.idle <- c
	}
	return r, nil
}

// Read runs fn on a connection of its own; all queries of fn see one state of the database, which has every write
// acknowledged before. It waits while all connections are in use. It fails with [ErrClosed], with ctx's error if that
// ends before a connection is free or during a query, and else with fn's error; a failure of the database itself has a
// kind ([Away]).
func (db *DB) Read(ctx context.Context, fn func(*View) error) error {
	r := db.readers
	select {
	case <-r.closing:
		return ErrClosed
	default:
	}
	select {
	case c := <-r.idle:
		defer func() { r.idle <- c }()
		return explain(c.view(ctx, fn))
	case <-ctx.Done():
		return ctx.Err()
	case <-r.closing:
		return ErrClosed
	}
}

// view runs fn in a read transaction.
func (c *conn) view(ctx context.Context, fn func(*View) error) error {
	if err := c.exec("BEGIN"); err != nil {
		return err
	}
	v := &View{ctx: ctx, conn: c}
	defer func() {
		v.broken = ErrTxDone
		_ = c.exec("ROLLBACK") // nothing was changed
	}()
	return fn(v)
}

// close waits for the running reads.
func (r *readers) close() error {
	close(r.closing)
	var errs []error
	for range cap(r.idle) {
		errs = append(errs, (<-r.idle).close())
	}
	return errors.Join(append(errs, r.db.Close())...)
}
