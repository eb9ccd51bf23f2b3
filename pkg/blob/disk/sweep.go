package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/blob"
)

// touchAfter is the age from which a read renews the time of a body. Sweeps use times in hours, which does not justify
// a write for each read.
const touchAfter = 30 * time.Minute

// touch marks a body as in use, if the folder is writable. A body that a sweep has just moved away counts as not found,
// since a new reference to it would be in vain.
func (s *Store) touch(f *os.File, project, hash string) error {
	if info, err := f.Stat(); err != nil || time.Since(info.ModTime()) < touchAfter {
		return err
	}
	now := time.Now()
	if err := s.root.Chtimes(bodyPath(project, hash), now, now); errors.Is(err, fs.ErrNotExist) {
		return notFound(err, project, hash)
	}
	return nil
}

// List names all bodies.
func (s *Store) List(ctx context.Context) (all []blob.Kept, err error) {
	defer func() { err = explain(err) }()
	projects, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	for _, project := range projects {
		if blob.CheckProject(project.Name()) != nil {
			continue
		}
		err := fs.WalkDir(s.root.FS(), project.Name(), func(_ string, entry fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil || entry.IsDir() || blob.CheckName(project.Name(), entry.Name()) != nil {
				return err
			}
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil {
				all = append(all, blob.Kept{Project: project.Name(), Hash: entry.Name(), Used: info.ModTime()})
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("blob: list: %w", err)
		}
	}
	return all, nil
}

// Peek reads a body, which does not count as a use. It fails with [blob.ErrNotFound].
func (s *Store) Peek(_ context.Context, project, hash string) (io.ReadCloser, error) {
	if err := blob.CheckName(project, hash); err != nil {
		return nil, err
	}
	f, err := s.root.Open(bodyPath(project, hash))
	if err != nil {
		return nil, explain(notFound(err, project, hash))
	}
	return f, nil
}

// DeleteUnused deletes a body unless it was put or read since a time. It is safe beside both: the body is moved away
// first, so that a later caller puts it anew or does not find it, and is moved back if a caller used it before that.
func (s *Store) DeleteUnused(ctx context.Context, project, hash string, since time.Time) (deleted bool, err error) {
	defer func() { err = explain(err) }()
	if err := blob.CheckName(project, hash); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	name := bodyPath(project, hash)
	if info, err := s.root.Stat(name); err != nil || !info.ModTime().Before(since) {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	away := path.Join(incoming, strings.Join([]string{"swept", project, hash}, "."))
	if err := s.root.Rename(name, away); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	info, err := s.root.Stat(away)
	if err != nil {
		return false, fmt.Errorf("blob: %w", err)
	}
	if !info.ModTime().Before(since) {
		return false, s.root.Rename(away, name)
	}
	if err := s.root.Remove(away); err != nil {
		return false, fmt.Errorf("blob: %w", err)
	}
	// A concurrent Put may lose its type; the body is then read as the default.
	if _, err := s.root.Stat(name); errors.Is(err, fs.ErrNotExist) {
		if err := s.root.Remove(name + typeSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return true, fmt.Errorf("blob: %w", err)
		}
	}
	return true, nil
}
