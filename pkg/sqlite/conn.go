package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// conn is one connection with its prepared statements. One goroutine uses it at a time.
type conn struct {
	sql   *sql.Conn
	stmts map[string]*stmt
}

// stmt is a prepared statement of one connection.
type stmt struct {
	*sql.Stmt
	effect effect
	// iterating is set while rows of the statement are being read: the driver keeps one cursor for a statement, so
	// a second use in the meantime would cut the first short.
	iterating bool
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
	return &conn{sql: c, stmts: make(map[string]*stmt)}, nil
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

// exec runs a statement that is not a caller's, such as BEGIN.
func (c *conn) exec(query string) error {
	ctx := context.Background() // a transaction begins and ends even if its caller has left
	s, err := c.prepare(ctx, query)
	if err != nil {
		return err
	}
	_, err = s.ExecContext(ctx)
	return err
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.sql.Close())...)
}
