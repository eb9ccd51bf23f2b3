package lifecycle

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
)

var (
	// ErrNotFound is returned for a sandbox without a record.
	ErrNotFound = errors.New("lifecycle: no such sandbox")
	// ErrChanged is returned for a record that was changed by another since it was read.
	ErrChanged = errors.New("lifecycle: the record was changed meanwhile")
)

// Store stores the records of the sandboxes of all hosts. Every change is durable when its method returns nil. It is
// safe for concurrent use, also by several processes.
type Store interface {
	// Installation returns the permanent name by which drivers distinguish our boxes from those of other installations.
	Installation(ctx context.Context) (string, error)
	// Put writes a record whose Revision must be one more than that of the stored record; 1 creates a record. With any
	// other it fails with [ErrChanged] and changes nothing.
	Put(ctx context.Context, s *Sandbox) error
	// Load returns a record, or [ErrNotFound].
	Load(ctx context.Context, id string) (*Sandbox, error)
	// Live returns all records of a host whose state is not over.
	Live(ctx context.Context, host string) ([]*Sandbox, error)
	// List returns up to limit records of a project, newest first, that come after the one made at created with that
	// id; a zero time begins with the newest. over includes the records of ended sandboxes.
	List(ctx context.Context, project string, created time.Time, id string, over bool, limit int) ([]*Sandbox, error)
	// Forget deletes the records of sandboxes that ended before that time.
	Forget(ctx context.Context, before time.Time) error
}

// schema is only ever appended to.
var schema = []string{
	`CREATE TABLE sandboxes (
		id        TEXT PRIMARY KEY,
		project   TEXT NOT NULL,
		host      TEXT NOT NULL,
		state     INTEGER NOT NULL,
		reason    TEXT NOT NULL,
		spec      BLOB NOT NULL,
		report    BLOB NOT NULL,
		boot_id   TEXT NOT NULL,
		timing    BLOB,
		created   INTEGER NOT NULL,
		lease     INTEGER NOT NULL,
		lease_end INTEGER NOT NULL,
		deadline  INTEGER NOT NULL,
		changed   INTEGER NOT NULL,
		revision  INTEGER NOT NULL
	) WITHOUT ROWID;
	CREATE INDEX sandboxes_by_age ON sandboxes (project, created DESC, id DESC);
	CREATE TABLE sandboxd_installation (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), name TEXT NOT NULL)`,
}

const columns = "id, project, host, state, reason, spec, report, boot_id, timing, created, lease, lease_end, deadline, changed, revision"

// sqliteStore is the Store in a SQLite database.
type sqliteStore struct{ db *sqlite.DB }

// NewStore returns the store in db, and creates its tables.
func NewStore(ctx context.Context, db *sqlite.DB) (Store, error) {
	if err := db.Migrate(ctx, "sandboxd", schema); err != nil {
		return nil, fmt.Errorf("make the tables of sandboxes: %w", err)
	}
	return &sqliteStore{db}, nil
}

func (s *sqliteStore) Installation(ctx context.Context) (name string, err error) {
	err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
		err := tx.QueryRow("SELECT name FROM sandboxd_installation").Scan(&name)
		if errors.Is(err, sql.ErrNoRows) {
			name = rand.Text()
			_, err = tx.Exec("INSERT INTO sandboxd_installation (only_row, name) VALUES (1, ?)", name)
		}
		return err
	})
	return name, err
}

func (s *sqliteStore) Put(ctx context.Context, b *Sandbox) error {
	spec, err := proto.Marshal(b.Spec)
	if err != nil {
		return fmt.Errorf("write the record of a sandbox: %w", err)
	}
	report, err := json.Marshal(b.Report)
	if err != nil {
		return fmt.Errorf("write the record of a sandbox: %w", err)
	}
	timing, err := proto.Marshal(b.Timing)
	if err != nil {
		return fmt.Errorf("write the record of a sandbox: %w", err)
	}
	return s.db.Write(ctx, func(tx *sqlite.Tx) error {
		var before int64
		err := tx.QueryRow("SELECT revision FROM sandboxes WHERE id = ?", b.ID).Scan(&before)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if b.Revision != before+1 {
			return ErrChanged
		}
		_, err = tx.Exec("INSERT OR REPLACE INTO sandboxes ("+columns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			b.ID, b.Project, b.Host, int(b.State), b.Reason, spec, report, b.BootID, timing, b.Created.UnixNano(), int64(b.Lease), b.LeaseEnd.UnixNano(),
			b.Deadline.UnixNano(), b.Changed.UnixNano(), b.Revision)
		return err
	})
}

func (s *sqliteStore) Load(ctx context.Context, id string) (b *Sandbox, err error) {
	err = s.db.Read(ctx, func(v *sqlite.View) error {
		b, err = scan(v.QueryRow("SELECT "+columns+" FROM sandboxes WHERE id = ?", id))
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
	return b, err
}

func (s *sqliteStore) Live(ctx context.Context, host string) ([]*Sandbox, error) {
	return s.all(ctx, "SELECT "+columns+" FROM sandboxes WHERE host = ? AND state NOT IN (?, ?, ?)", host, int(Deleted), int(Lost), int(Failed))
}

func (s *sqliteStore) List(ctx context.Context, project string, created time.Time, id string, over bool, limit int) ([]*Sandbox, error) {
	query := "SELECT " + columns + " FROM sandboxes WHERE project = ?"
	args := []any{project}
	if !created.IsZero() {
		query += " AND (created, id) < (?, ?)"
		args = append(args, created.UnixNano(), id)
	}
	if !over {
		query += " AND state NOT IN (?, ?, ?)"
		args = append(args, int(Deleted), int(Lost), int(Failed))
	}
	return s.all(ctx, query+" ORDER BY created DESC, id DESC LIMIT ?", append(args, limit)...)
}

func (s *sqliteStore) Forget(ctx context.Context, before time.Time) error {
	return s.db.Write(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec("DELETE FROM sandboxes WHERE state IN (?, ?, ?) AND changed < ?", int(Deleted), int(Lost), int(Failed), before.UnixNano())
		return err
	})
}

func (s *sqliteStore) all(ctx context.Context, query string, args ...any) (all []*Sandbox, err error) {
	err = s.db.Read(ctx, func(v *sqlite.View) error {
		for row, err := range v.Query(query, args...) {
			if err != nil {
				return err
			}
			b, err := scan(row)
			if err != nil {
				return err
			}
			all = append(all, b)
		}
		return nil
	})
	return all, err
}

func scan(row sqlite.Row) (*Sandbox, error) {
	var (
		b                                           Sandbox
		spec, report, timing                        []byte
		state                                       int
		created, lease, leaseEnd, deadline, changed int64
	)
	if err := row.Scan(&b.ID, &b.Project, &b.Host, &state, &b.Reason, &spec, &report, &b.BootID, &timing, &created, &lease, &leaseEnd, &deadline, &changed, &b.Revision); err != nil {
		return nil, err
	}
	b.State, b.Lease = State(state), time.Duration(lease)
	b.Created, b.LeaseEnd, b.Deadline, b.Changed = time.Unix(0, created), time.Unix(0, leaseEnd), time.Unix(0, deadline), time.Unix(0, changed)
	b.Spec = &sandboxv1.SandboxSpec{}
	if err := errors.Join(proto.Unmarshal(spec, b.Spec), json.Unmarshal(report, &b.Report)); err != nil {
		return nil, fmt.Errorf("read the record of sandbox %s: %w", b.ID, err)
	}
	if len(timing) > 0 {
		b.Timing = &effectv1.Timing{}
		if err := proto.Unmarshal(timing, b.Timing); err != nil {
			return nil, fmt.Errorf("read the record of sandbox %s: %w", b.ID, err)
		}
	}
	return &b, nil
}
