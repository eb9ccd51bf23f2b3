// Package blob is the port to bodies that are too large for a message or a row: datasets, images, outputs, raw calls. A
// body is named by its content, within a project: bodies of two projects under one hash are separate, and neither
// project sees the other's. A body is durable before the reference to it exists, so an event may name it at once.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"regexp"
	"time"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

var (
	// ErrNotFound is returned for a body that the project does not hold.
	ErrNotFound = errors.New("blob: not found")
	// ErrRange is returned for an offset or a limit below zero, and for an offset past the end.
	ErrRange = errors.New("blob: range is outside of the body")
	// ErrInvalid is the error for an invalid project, hash or media type.
	ErrInvalid = errors.New("blob: invalid name")
)

// TooLargeError is returned for a body over the store's limit.
type TooLargeError struct {
	// LimitBytes is the store's limit.
	LimitBytes int64
}

// Error names the limit.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("blob: too large: the limit is %d bytes", e.LimitBytes)
}

// DamagedError is the error for a body whose bytes no longer match the hash that names it. Putting the body again
// replaces it. Callers of RPCs receive BODY_DAMAGED.
type DamagedError struct {
	Project, Hash string
}

// Error names the body and the next step.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("the stored body %s of project %s is damaged: its bytes have another hash; upload it again, or restore its file and check the disk",
		e.Hash, e.Project)
}

// Unwrap gives the error its kind.
func (e *DamagedError) Unwrap() error { return rpcerr.BodyDamaged(e.Hash, "%s", e.Error()) }

// DefaultMediaType is that of a body of which none is known.
const DefaultMediaType = "application/octet-stream"

// Ref names a body.
type Ref struct {
	// Hash is the SHA-256 of the bytes in 64 lower-case hexadecimal digits.
	Hash string
	// Size is in bytes.
	Size int64
	// MediaType is the type of the content. It is not part of the body's name.
	MediaType string
}

// Kept is a body as a store lists it.
type Kept struct {
	// Project and Hash name it.
	Project, Hash string
	// Used is when it was last put or read, to about an hour.
	Used time.Time
}

// Store keeps bodies. Its methods are safe for concurrent use, also for one body.
type Store interface {
	// Put reads body to its end and stores it. It returns once the body is durable. Putting a body again only replaces
	// the media type. An empty mediaType is DefaultMediaType. It fails with a [TooLargeError] if body exceeds the
	// store's limit and with body's own error if reading fails; nothing is stored then.
	Put(ctx context.Context, project string, body io.Reader, mediaType string) (Ref, error)

	// Get returns the bytes of a body from offset, at most limit of them unless it is zero. The caller closes the
	// reader, which remains valid when the body is deleted. It fails with [ErrNotFound] or [ErrRange].
	//
	// A damaged body fails with a [DamagedError]: a read of the whole body fails each time, at the latest in place of
	// its last bytes; a read of a part fails if the store finds that the body changed since it checked the whole.
	Get(ctx context.Context, project, hash string, offset, limit int64) (io.ReadCloser, Ref, error)

	// Stat returns the reference to a body. It fails with [ErrNotFound].
	Stat(ctx context.Context, project, hash string) (Ref, error)

	// Delete deletes a body. Deleting a missing body is not an error.
	Delete(ctx context.Context, project, hash string) error
}

// A project's id is a path segment or a key prefix in stores, so its form is checked here again.
var (
	projectForm = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	hashForm    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// maxMediaTypeBytes bounds a media type with its parameters.
const maxMediaTypeBytes = 255

// CheckProject returns [ErrInvalid] unless project is a project's id.
func CheckProject(project string) error {
	if !projectForm.MatchString(project) {
		return fmt.Errorf("%w: %q is no project", ErrInvalid, project)
	}
	return nil
}

// CheckName returns [ErrInvalid] unless project and hash can name a body.
func CheckName(project, hash string) error {
	if err := CheckProject(project); err != nil {
		return err
	}
	if !hashForm.MatchString(hash) {
		return fmt.Errorf("%w: %q is no hash; want 64 lower-case hexadecimal digits", ErrInvalid, hash)
	}
	return nil
}

// CheckMediaType returns the media type to keep, or [ErrInvalid].
func CheckMediaType(mediaType string) (string, error) {
	if mediaType == "" {
		return DefaultMediaType, nil
	}
	if _, _, err := mime.ParseMediaType(mediaType); err != nil || len(mediaType) > maxMediaTypeBytes {
		return "", fmt.Errorf("%w: %q is no media type", ErrInvalid, mediaType)
	}
	return mediaType, nil
}

// CheckRange returns the number of bytes that a read of limit bytes (zero: all) from offset returns of a body of size
// bytes, or [ErrRange].
func CheckRange(size, offset, limit int64) (int64, error) {
	if offset < 0 || limit < 0 || offset > size {
		return 0, fmt.Errorf("%w: %d bytes from %d of %d", ErrRange, limit, offset, size)
	}
	if rest := size - offset; limit == 0 || limit > rest {
		return rest, nil
	}
	return limit, nil
}
