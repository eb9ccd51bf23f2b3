package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
)

// conn is one connection with its prepared statements. One goroutine uses it at a time.
type conn struct {
	sql   *sql.Conn
	stmts map[string]*stmt
	execs map[string]*execStmt
}

// stmt is a prepared statement of one connection.
type stmt struct {
	*sql.Stmt
	effect effect
	// iterating is set while rows of the statement are being read: the driver keeps one cursor for a statement, so
	// a second use in the meantime would cut the first short.
	iterating bool
}

// execStmt is a prepared statement that returns no rows. It is the driver's own: what [database/sql] does for each
// execution beside it is a tenth of a small write.
type execStmt struct {
	prepared driver.Stmt
	execute  driver.StmtExecContext // the same
	effect   effect
	args     []driver.NamedValue // of the last execution; used again
}

// effect is the way to find out whether a statement has changed anything.
type effect uint8

const (
	unclear effect = iota // may change something that its row count does not show
	counted               // changes nothing when it reports no affected row
	none                  // only reads
)

func effectOf(query string) effect {
	verb, _, _ := strings.Cut(strings.TrimSpace(query), " ")
	switch strings.ToUpper(strings.TrimSpace(verb)) {
	case "SELECT", "VALUES":
		return none
	case "INSERT", "UPDATE", "DELETE", "REPLACE":
		return counted
	default:
		return unclear
	}
}

func newConn(ctx context.Context, db *sql.DB) (*conn, error) {
	c, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{sql: c, stmts: map[string]*stmt{}, execs: map[string]*execStmt{}}, nil
}

// prepare returns the statement for query, which is prepared once and then kept for the life of the connection.
func (c *conn) prepare(ctx context.Context, query string) (*stmt, error) {
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	p, err := c.sql.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s := &stmt{Stmt: p, effect: effectOf(query)}
	c.stmts[query] = s
	return s, nil
}

// prepareExec returns the statement without rows for query, which is prepared once and then kept for the life of the
// connection.
func (c *conn) prepareExec(ctx context.Context, query string) (*execStmt, error) {
	if s, ok := c.execs[query]; ok {
		return s, nil
	}
	s := &execStmt{effect: effectOf(query)}
	err := c.sql.Raw(func(raw any) error {
		p, ok := raw.(driver.ConnPrepareContext)
		if !ok {
			return errors.ErrUnsupported
		}
		var err error
		if s.prepared, err = p.PrepareContext(ctx, query); err != nil {
			return err
		}
		if s.execute, ok = s.prepared.(driver.StmtExecContext); !ok {
			return errors.Join(errors.ErrUnsupported, s.prepared.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.execs[query] = s
	return s, nil
}

// run executes the statement.
func (c *conn) run(ctx context.Context, s *execStmt, args []any) (res driver.Result, err error) {
	s.args = s.args[:0]
	for i, arg := range args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return nil, fmt.Errorf("sqlite: argument %d: %w", i+1, err)
		}
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	defer clear(s.args)
	err = c.sql.Raw(func(any) error {
		res, err = s.execute.ExecContext(ctx, s.args)
		return err
	})
	return res, err
}

// exec runs a statement that is not a caller's, such as BEGIN.
func (c *conn) exec(query string) error {
	ctx := context.Background() // a transaction begins and ends even if its caller has left
	s, err := c.prepareExec(ctx, query)
	if err != nil {
		return err
	}
	_, err = c.run(ctx, s, nil)
	return err
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	for _, s := range c.execs {
		errs = append(errs, s.prepared.Close())
	}
	return errors.Join(append(errs, c.sql.Close())...)
}
