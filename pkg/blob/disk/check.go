package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/lru"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
)

// whole reads a body from its first byte to its last, and holds back the last ones until the hash of all is verified.
type whole struct {
	r       *os.File
	left    int64
	hash    hash.Hash
	damaged *blob.DamagedError
}

// Read implements io.Reader.
func (w *whole) Read(p []byte) (int, error) {
	if int64(len(p)) > w.left {
		p = p[:w.left]
	}
	n, err := 0, error(nil)
	if w.left > 0 {
		n, err = w.r.Read(p)
		_, _ = w.hash.Write(p[:n]) // A hash takes everything.
		w.left -= int64(n)
	}
	switch {
	case err == io.EOF, //nolint:errorlint // A file gives it as it is. The body was cut since it was opened.
		err == nil && w.left == 0 && hex.EncodeToString(w.hash.Sum(nil)) != w.damaged.Hash:
		return 0, w.damaged
	case err == nil && n == 0 && w.left == 0:
		return 0, io.EOF
	}
	return n, explain(err)
}

// Close implements io.Closer.
func (w *whole) Close() error { return w.r.Close() }

// version distinguishes a file from an earlier or later one of the same path.
type version struct {
	device, inode uint64
	size          int64
	changed       syscall.Timespec
}

func versionOf(info fs.FileInfo) version {
	stat := info.Sys().(*syscall.Stat_t) //nolint:forcetypeassert // It is that on Linux, the only system that stores run on.
	return version{stat.Dev, stat.Ino, stat.Size, stat.Ctim}
}

// keptChecks bounds the bodies that are remembered as checked.
const keptChecks = 16 << 10

// checked remembers the files of bodies whose bytes were found to be right.
type checked struct {
	mu       sync.Mutex
	versions *lru.Cache[string, version]
}

func newChecked() *checked { return &checked{versions: lru.New[string, version](keptChecks)} }

// check verifies a body of which a part is read, unless it did so before and the file has not changed since. It fails
// with a [blob.DamagedError].
func (s *Store) check(ctx context.Context, f *os.File, project, hash string) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	name, now := bodyPath(project, hash), versionOf(info)
	s.checked.mu.Lock()
	before, known := s.checked.versions.Get(name)
	s.checked.mu.Unlock()
	if known && before == now {
		return nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, regularfile.ContextReader(ctx, io.NewSectionReader(f, 0, info.Size()))); err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != hash {
		return &blob.DamagedError{Project: project, Hash: hash}
	}
	s.checked.mu.Lock()
	defer s.checked.mu.Unlock()
	s.checked.versions.Put(name, now, 1)
	return nil
}
