// Package regularfile opens regular files and nothing else. A named pipe, a terminal or a device can block its reader
// or never end, so untrusted paths are opened here. Some files of /proc, and files of an unreachable server, appear
// regular and block a reader as well: reading them ends with a context.
package regularfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Error is the reason why the file at a path is not read.
type Error struct {
	// Path is the path of the file.
	Path string
	// Why describes what is at Path, or the exceeded bound, and the remedy.
	Why string
}

// Error names the path and the next step.
func (e *Error) Error() string { return e.Path + " " + e.Why }

// Open opens a regular file for reading, through symbolic links. It does not wait for a writer of a named pipe.
// Anything but a regular file is an [Error]; faults of opening are those of [os.Open].
func Open(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if errors.Is(err, syscall.ENXIO) {
		return nil, nil, &Error{path, "is a socket or has no device; name a regular file"}
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = check(path, info.Mode())
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// check returns an [Error] unless mode is that of a regular file.
func check(path string, mode fs.FileMode) error {
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return &Error{path, "is a folder; name a file in it"}
	case mode&fs.ModeNamedPipe != 0:
		return &Error{path, "is a pipe; save what it gives to a file and name that"}
	}
	return &Error{path, "is a device or a socket; name a regular file"}
}

// Read returns the content of a regular file of at most maxBytes. Anything else, and a longer file, is an [Error]. It
// ends with ctx, as a [ReaderPastCache] reader does.
func Read(ctx context.Context, path string, maxBytes int64) (content []byte, err error) {
	f, info, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info.Size() > maxBytes {
		return nil, tooLarge(path, maxBytes)
	}
	// The size is not relied on: the file may grow, and files of /proc have none.
	content, err = io.ReadAll(io.LimitReader(ReaderPastCache(ctx, f), maxBytes+1))
	if err == nil && int64(len(content)) > maxBytes {
		err = tooLarge(path, maxBytes)
	}
	return content, err
}

func tooLarge(path string, maxBytes int64) *Error {
	return &Error{path, fmt.Sprintf("is larger than %d bytes, the most that is read", maxBytes)}
}

// ReaderPastCache returns a reader of r that fails with the context's error once that has ended, also during a read of
// r: that read is abandoned, and may never end. It must be safe to close r during a read, as with an [os.File].
func ReaderPastCache(ctx context.Context, r io.Reader) io.Reader {
	return &leavingReader{ctx: ctx, r: r}
}

type leavingReader struct {
	ctx context.Context //nolint:containedctx // It is that of the one call that reads.
	r   io.Reader
	buf []byte // that a read fills which may be left
}

// leavingBytes bounds one read.
const leavingBytes = 64 << 10

func (r *leavingReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	size := min(len(p), leavingBytes)
	if len(r.buf) < size {
		r.buf = make([]byte, size)
	}
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := r.r.Read(r.buf[:size])
		done <- result{n, err}
	}()
	select {
	case read := <-done:
		return copy(p, r.buf[:read.n]), read.err
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	}
}

// ContextReader returns a reader of r that fails with the context's error once that has ended.
func ContextReader(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context //nolint:containedctx // It is that of the one call that reads.
	r   io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
