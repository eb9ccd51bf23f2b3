package taskfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
)

// Files are the files that a task file names, by the names that it has for them.
type Files interface {
	// Body names the content of a file, which travels apart from the specification. It fails with a [MissingError].
	Body(ctx context.Context, name string) (*contentv1.BlobRef, error)
	// Read gives the content of a file of at most so many bytes, which becomes part of the specification.
	Read(ctx context.Context, name string, most int64) ([]byte, error)
}

// MissingError is the error for a missing file; it lists alternatives.
type MissingError struct{ Message string }

// Error is the message.
func (e *MissingError) Error() string { return e.Message }

// BodyType is the media type of files that a specification names by their content.
const BodyType = "application/octet-stream"

// folder is the files of this machine. Only regular files are read.
type folder struct {
	// dir is the base of relative paths, and start describes it in faults.
	dir, start string
	// bodies are the files that were named by their content.
	bodies []Body
}

func (f *folder) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(f.dir, name)
}

// Body implements [Files].
func (f *folder) Body(ctx context.Context, name string) (*contentv1.BlobRef, error) {
	path := f.path(name)
	file, _, err := regularfile.Open(path)
	if err != nil {
		return nil, f.missing(path, err)
	}
	defer file.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, regularfile.ReaderPastCache(ctx, file))
	if err != nil {
		return nil, err
	}
	ref := &contentv1.BlobRef{Hash: hex.EncodeToString(hash.Sum(nil)), Size: size, MediaType: BodyType}
	f.bodies = append(f.bodies, Body{Path: path, Ref: ref})
	return ref, nil
}

// Read implements [Files].
func (f *folder) Read(ctx context.Context, name string, most int64) ([]byte, error) {
	path := f.path(name)
	content, err := regularfile.Read(ctx, path, most)
	return content, f.missing(path, err)
}

// missing makes the error for a missing file of what the file system says.
func (f *folder) missing(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &MissingError{fmt.Sprintf("there is no file %s; relative paths start %s", path, f.start)}
	}
	return err
}
