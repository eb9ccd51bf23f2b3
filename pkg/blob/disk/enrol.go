package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
)

const (
	databases = ".databases" // no project's id begins with a point
	// unknown is the mark of databases that named bodies before there were marks.
	unknown = "unknown"
)

// Untouched reports whether the directory has neither a body nor the mark of a database: it is new.
func (s *Store) Untouched(ctx context.Context) (bool, error) {
	marks, err := fs.ReadDir(s.root.FS(), databases)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, explain(fmt.Errorf("blob: %w", err))
	}
	if len(marks) > 0 {
		return false, nil
	}
	bodies, err := s.List(ctx)
	return err == nil && len(bodies) == 0, err
}

// Enrol marks the directory durably with the id of a database whose rows name bodies in it, and returns the marks of
// other databases: bodies may be swept by references only if one database alone has them. Own means that bodies which
// precede any mark are that database's; else they get the mark `unknown`. It is idempotent.
func (s *Store) Enrol(ctx context.Context, id string, own bool) (others []string, err error) {
	defer func() { err = explain(err) }()
	if err := s.makeDir(databases); err != nil {
		return nil, fmt.Errorf("blob: enrol: %w", err)
	}
	marks, err := fs.ReadDir(s.root.FS(), databases)
	if err != nil {
		return nil, fmt.Errorf("blob: enrol: %w", err)
	}
	var need []string
	if len(marks) == 0 && !own {
		bodies, err := s.List(ctx)
		if err != nil {
			return nil, err
		}
		if len(bodies) > 0 {
			need, others = append(need, unknown), append(others, unknown)
		}
	}
	mine := false
	for _, mark := range marks {
		if mark.Name() == id {
			mine = true
		} else {
			others = append(others, mark.Name())
		}
	}
	if !mine {
		need = append(need, id)
	}
	for _, name := range need { // Its own comes last: if it exists, the others do.
		f, err := s.root.OpenFile(path.Join(databases, name), os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close(), s.syncDir(databases))
		}
		if err != nil {
			return nil, fmt.Errorf("blob: enrol: %w", err)
		}
	}
	return others, nil
}
