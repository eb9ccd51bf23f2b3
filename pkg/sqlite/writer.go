package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// write is one function waiting for, or in, a transaction.
type write struct {
	fn       func(*Tx) error
	err      error
	panicked error         // set when fn panicked; raised again in the caller
	taken    bool          // guarded by writer.mu; once set the outcome decides, not the caller's context
	dropped  bool          // guarded by writer.mu; the caller has gone
	done     chan struct{} // closed when err and panicked are final
}

// writer owns the one connection that changes the database.
type writer struct {
	db       *sql.DB
	conn     *conn
	maxBatch int
	counters struct{ commits, writes, failed, reruns atomic.Uint64 }
	stopped  chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	waiting sync.Cond // signalled when queue or closing changes
	queue   []*write
	closing bool
}

func openWriter(ctx context.Context, dsn string, maxBatch int) (*writer, error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	c, err := newConn(ctx, db)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	w := &writer{db: db, conn: c, maxBatch: maxBatch, stopped: make(chan struct{})}
	w.waiting.L = &w.mu
	if err := c.exec(versionTable); err != nil {
		return nil, errors.Join(err, c.close(), db.Close())
	}
	go w.run()
	return w, nil
}

// Write queues fn for the next transaction and returns nil once that is committed and synced to disk. If fn returns an
// error its own changes are undone, those of the others in the transaction remain, and Write returns that error. If the
// commit fails, or the database itself does, every function in the transaction fails with that error ([Away]).
//
// While fn is queued the end of ctx withdraws it, and Write returns ctx's error; once fn has started Write waits for
// the outcome, so that an error of ctx always means that fn has had no effect. [ErrClosed] is returned after Close.
//
// fn runs on the writer's goroutine and blocks all other writes: it should only use tx. It may run twice, if another
// function of its transaction fails midway; only the last run counts, so it should set, not add to, its results. A
// panic of fn counts as an error and is raised again in the caller. fn must not call [runtime.Goexit], which a failing
// test's FailNow does.
func (db *DB) Write(ctx context.Context, fn func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q := &write{fn: fn, done: make(chan struct{})}
	if err := db.writer.enqueue(q); err != nil {
		return err
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		if db.writer.withdraw(q) {
			return ctx.Err()
		}
		<-q.done
	}
	if q.panicked != nil {
		panic(q.panicked)
	}
	return explain(q.err)
}

func (w *writer) enqueue(q *write) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return ErrClosed
	}
	w.queue = append(w.queue, q)
	w.waiting.Signal()
	return nil
}

// withdraw reports whether q was still queued; it will then never run.
func (w *writer) withdraw(q *write) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.dropped = !q.taken
	return q.dropped
}

// stop refuses further writes and waits until the queued ones are answered.
func (w *writer) stop() {
	w.mu.Lock()
	w.closing = true
	w.waiting.Signal()
	w.mu.Unlock()
	<-w.stopped
}

func (w *writer) close() error {
	w.stop()
	return errors.Join(w.conn.close(), w.db.Close())
}

func (w *writer) run() {
	defer close(w.stopped)
	for {
		batch := w.next()
		if len(batch) == 0 {
			return
		}
		w.commit(batch)
		for _, q := range batch {
			if q.err == nil && q.panicked == nil {
				w.counters.writes.Add(1)
			} else {
				w.counters.failed.Add(1)
			}
			close(q.done)
		}
	}
}

// next waits for writes and removes up to maxBatch of them, in order of arrival. It returns none if the writer is
// closing and all are done.
func (w *writer) next() []*write {
	// The callers just answered are about to write again. Letting them run first makes one full transaction instead of
	// two halves that alternate.
	runtime.Gosched()
	w.mu.Lock()
	defer w.mu.Unlock()
	var batch []*write
	for len(batch) == 0 {
		for len(w.queue) == 0 {
			if w.closing {
				return nil
			}
			w.waiting.Wait()
		}
		n := min(len(w.queue), w.maxBatch)
		for _, q := range w.queue[:n] {
			if !q.dropped {
				q.taken = true
				batch = append(batch, q)
			}
		}
		rest := copy(w.queue, w.queue[n:])
		clear(w.queue[rest:])
		w.queue = w.queue[:rest]
	}
	return batch
}

// errRerun requests a second, guarded run of a transaction.
var errRerun = errors.New("a function failed after a change")

// commit runs a batch in one transaction and sets the outcome of each function. The first run has no savepoints: they
// cost about a third of a small write, and nearly every function that fails has changed nothing by then. If one has,
// all is rolled back and run again with a savepoint around each.
func (w *writer) commit(batch []*write) {
	err := w.transact(batch, false)
	if errors.Is(err, errRerun) && len(batch) == 1 {
		return // the rollback has undone that one function, and its outcome is set
	}
	if errors.Is(err, errRerun) {
		w.counters.reruns.Add(1)
		err = w.transact(batch, true)
	}
	if err != nil {
		for _, q := range batch {
			q.err, q.panicked = err, nil
		}
	}
}

// transact runs a batch in one transaction. An error means that none of its changes remain.
func (w *writer) transact(batch []*write, guarded bool) error {
	if err := w.conn.exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("sqlite: begin: %w", err)
	}
	for _, q := range batch {
		if err := w.runOne(q, guarded); err != nil {
			w.rollback()
			return err
		}
	}
	if err := w.conn.exec("COMMIT"); err != nil {
		w.rollback()
		return fmt.Errorf("sqlite: commit: %w", err)
	}
	w.counters.commits.Add(1)
	return nil
}

// runOne runs one function and, when guarded, undoes its changes if it fails. An error is one of the whole transaction.
func (w *writer) runOne(q *write, guarded bool) error {
	if guarded {
		if err := w.conn.exec("SAVEPOINT one"); err != nil {
			return fmt.Errorf("sqlite: savepoint: %w", err)
		}
	}
	tx := &Tx{View{ctx: context.Background(), conn: w.conn}}
	q.call(tx)
	broken := tx.broken
	tx.broken = ErrTxDone
	failed := q.err != nil || q.panicked != nil
	switch {
	case broken != nil:
		return fmt.Errorf("sqlite: transaction: %w", broken)
	case failed && tx.changed && !guarded:
		return errRerun
	case failed && guarded:
		if err := w.conn.exec("ROLLBACK TO one"); err != nil {
			return fmt.Errorf("sqlite: rollback to savepoint: %w", err)
		}
	}
	if guarded {
		if err := w.conn.exec("RELEASE one"); err != nil {
			return fmt.Errorf("sqlite: release savepoint: %w", err)
		}
	}
	return nil
}

// rollback ends the transaction, if SQLite has not ended it itself. When it fails, so does the next BEGIN, and with it
// every later write, so that the failure is noticed.
func (w *writer) rollback() { _ = w.conn.exec("ROLLBACK") }

// call runs the function and keeps its outcome.
func (q *write) call(tx *Tx) {
	q.err, q.panicked = nil, nil
	defer func() {
		if p := recover(); p != nil {
			q.panicked = fmt.Errorf("sqlite: write function panicked: %v\n\n%s", p, debug.Stack())
		}
	}()
	q.err = q.fn(tx)
}
