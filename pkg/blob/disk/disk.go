// Package disk keeps blobs as files of one directory.
//
//	<project>/<first two digits of the hash>/<hash>         the body
//	<project>/<first two digits of the hash>/<hash>.type    its media type, unless that is the default
//	.incoming/                                              bodies being received
//	.databases/<id>                                         the mark of a database that names bodies
//
// A body is written to a file of its own, synced, renamed into place, and the directory synced; so a visible body is
// complete, and an acknowledged one is on disk.
package disk

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// DefaultMaxBytes is the limit of a body when none is set.
const DefaultMaxBytes = 1 << 30

const (
	incoming   = ".incoming" // no project's id begins with a point
	typeSuffix = ".type"
	// staleAfter is the age from which a file in incoming belongs to a process that died.
	staleAfter = 24 * time.Hour
)

// Config sets how bodies are kept.
type Config struct {
	// Dir holds the bodies. It is made, with its parents, when it is not there. Required.
	Dir string
	// MaxBytes bounds one body. Zero is DefaultMaxBytes.
	MaxBytes int64
}

// Store is a [blob.Store] in one directory. Several processes may share the directory.
type Store struct {
	root     *os.Root // confines every path, links included
	share    share
	maxBytes int64
	onDisk   sync.Map // directories that this store has made and synced
	checked  *checked
}

var _ blob.Store = (*Store)(nil)

// Open returns the store in a directory and removes partial bodies of processes that have died. The caller must Close
// it.
func Open(cfg Config) (*Store, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	root, err := os.OpenRoot(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	s := &Store{root: root, maxBytes: cfg.MaxBytes, checked: newChecked()}
	if s.share, err = shareOf(root); err == nil {
		err = s.sweep()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("blob: %w", err), root.Close())
	}
	return s, nil
}

// Dir returns the directory.
func (s *Store) Dir() string { return s.root.Name() }

// Close releases the directory. Readers that Get returned remain valid.
func (s *Store) Close() error { return s.root.Close() }

// Put implements [blob.Store].
func (s *Store) Put(ctx context.Context, project string, body io.Reader, mediaType string) (ref blob.Ref, err error) {
	if err := blob.CheckProject(project); err != nil {
		return blob.Ref{}, err
	}
	if mediaType, err = blob.CheckMediaType(mediaType); err != nil {
		return blob.Ref{}, err
	}
	temp, err := s.temp()
	if err != nil {
		return blob.Ref{}, explain(fmt.Errorf("blob: %w", err))
	}
	defer func() {
		err = explain(errors.Join(err, s.discard(temp)))
	}()
	hash := sha256.New()
	// One more, to distinguish a body at the limit from one over it.
	limited := io.LimitReader(regularfile.ContextReader(ctx, body), s.maxBytes+1)
	size, err := io.Copy(io.MultiWriter(temp, hash), limited)
	if err != nil {
		return blob.Ref{}, fmt.Errorf("blob: receive: %w", err)
	}
	if size > s.maxBytes {
		return blob.Ref{}, &blob.TooLargeError{LimitBytes: s.maxBytes}
	}
	ref = blob.Ref{Hash: hex.EncodeToString(hash.Sum(nil)), Size: size, MediaType: mediaType}
	if err := s.place(temp, project, ref); err != nil {
		return blob.Ref{}, fmt.Errorf("blob: keep: %w", err)
	}
	return ref, nil
}

// explain classifies failures of the disk itself; other errors are unchanged.
func explain(err error) error { return rpcerr.FromDisk(err, "the bodies") }

// Get implements [blob.Store].
func (s *Store) Get(ctx context.Context, project, hash string, offset, limit int64) (_ io.ReadCloser, ref blob.Ref, err error) {
	defer func() { err = explain(err) }()
	if ref, err = s.Stat(ctx, project, hash); err != nil {
		return nil, blob.Ref{}, err
	}
	f, err := s.root.Open(bodyPath(project, hash))
	if err != nil {
		return nil, blob.Ref{}, notFound(err, project, hash)
	}
	if err := s.touch(f, project, hash); err != nil {
		return nil, blob.Ref{}, errors.Join(err, f.Close())
	}
	n, outside := blob.CheckRange(ref.Size, offset, limit)
	if outside == nil && n == ref.Size {
		return &whole{r: f, left: n, hash: sha256.New(), damaged: &blob.DamagedError{Project: project, Hash: hash}}, ref, nil
	}
	// Also where the part lies outside: a body that was cut is damaged, not short.
	if err := cmp.Or(s.check(ctx, f, project, hash), outside); err != nil {
		return nil, blob.Ref{}, errors.Join(err, f.Close())
	}
	return section{io.NewSectionReader(f, offset, n), f}, ref, nil
}

// Stat implements [blob.Store].
func (s *Store) Stat(ctx context.Context, project, hash string) (_ blob.Ref, err error) {
	defer func() { err = explain(err) }()
	if err := blob.CheckName(project, hash); err != nil {
		return blob.Ref{}, err
	}
	if err := ctx.Err(); err != nil {
		return blob.Ref{}, err
	}
	name := bodyPath(project, hash)
	info, err := s.root.Stat(name)
	if err != nil {
		return blob.Ref{}, notFound(err, project, hash)
	}
	if !info.Mode().IsRegular() { // Reading something else may never end.
		return blob.Ref{}, &blob.DamagedError{Project: project, Hash: hash}
	}
	mediaType, err := s.root.ReadFile(name + typeSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		mediaType, err = []byte(blob.DefaultMediaType), nil
	}
	if err != nil {
		return blob.Ref{}, fmt.Errorf("blob: %w", err)
	}
	return blob.Ref{Hash: hash, Size: info.Size(), MediaType: string(mediaType)}, nil
}

// Delete implements [blob.Store].
func (s *Store) Delete(ctx context.Context, project, hash string) (err error) {
	defer func() { err = explain(err) }()
	if err := blob.CheckName(project, hash); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	name := bodyPath(project, hash)
	// The body first: a type without a body is nothing, a body without its type would be another.
	for _, name := range []string{name, name + typeSuffix} {
		if err := s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("blob: %w", err)
		}
	}
	return nil
}

// place moves a received body, and its media type, to their final paths.
func (s *Store) place(temp *os.File, project string, ref blob.Ref) error {
	name := bodyPath(project, ref.Hash)
	if err := s.makeDir(project, path.Dir(name)); err != nil {
		return err
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := s.placeType(name+typeSuffix, ref.MediaType); err != nil {
		return err
	}
	if err := s.root.Rename(tempPath(temp), name); err != nil {
		return err
	}
	return s.syncDir(path.Dir(name))
}

// placeType keeps a media type. Its directory is synced together with the body.
func (s *Store) placeType(name, mediaType string) (err error) {
	if mediaType == blob.DefaultMediaType {
		if err := s.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	temp, err := s.temp()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.discard(temp)) }()
	if _, err := temp.WriteString(mediaType); err != nil {
		return err
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	return s.root.Rename(tempPath(temp), name)
}

// makeDir creates the missing ones of nested directories and syncs each parent, so that their later content cannot be
// lost with them.
func (s *Store) makeDir(dirs ...string) error {
	for _, dir := range dirs {
		if _, ok := s.onDisk.Load(dir); ok {
			continue
		}
		if err := s.mkdir(dir); err != nil {
			return err
		}
		// Also if it exists: its creator may have died before the sync.
		if err := s.syncDir(path.Dir(dir)); err != nil {
			return err
		}
		s.onDisk.Store(dir, nil)
	}
	return nil
}

func (s *Store) syncDir(name string) error {
	d, err := s.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// temp creates a file to receive into.
func (s *Store) temp() (*os.File, error) {
	name := path.Join(incoming, rand.Text())
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := s.share.give(s.root, name, 0o600); err != nil {
		return nil, errors.Join(err, s.discard(f))
	}
	return f, nil
}

// discard closes a temporary file and removes it unless it has been renamed.
func (s *Store) discard(temp *os.File) error {
	err := s.root.Remove(tempPath(temp))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, temp.Close())
}

// sweep prepares the directory for temporary files.
func (s *Store) sweep() error {
	if err := s.mkdir(incoming); err != nil {
		return err
	}
	left, err := fs.ReadDir(s.root.FS(), incoming)
	if err != nil {
		return err
	}
	for _, entry := range left {
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		if err := s.root.Remove(path.Join(incoming, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func bodyPath(project, hash string) string { return path.Join(project, hash[:2], hash) }

func tempPath(temp *os.File) string { return path.Join(incoming, path.Base(temp.Name())) }

func notFound(err error, project, hash string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s in project %s", blob.ErrNotFound, hash, project)
	}
	return fmt.Errorf("blob: %w", err)
}

// section is a part of an open file.
type section struct {
	*io.SectionReader
	io.Closer
}

// Read implements io.Reader.
func (s section) Read(p []byte) (int, error) {
	n, err := s.SectionReader.Read(p)
	return n, explain(err)
}
