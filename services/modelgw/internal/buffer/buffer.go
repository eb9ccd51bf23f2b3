// Package buffer pools buffers for the bodies of requests and answers: bodies are long, and a new buffer for each would
// be the largest cost of the garbage collector in a call.
package buffer

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// least is the initial size of Fill if the length of a body is unknown.
	least = 16 << 10
	// mostKept bounds the buffers that are kept for later.
	mostKept = 1 << 20
)

// ErrTooLarge is the error for a body larger than its bound.
var ErrTooLarge = errors.New("the body is too large")

// kept are buffers for later, as pointers to slices.
var kept = sync.Pool{New: func() any { return new([]byte) }}

// Buffer holds the bytes of a body. Several users may share it, as long as none modifies it; its memory is reused once
// the last of them has released it.
type Buffer struct {
	// Bytes are empty at first, and grow by append. They are not to be used after Release.
	Bytes []byte

	memory *[]byte
	users  atomic.Int32
}

// New returns an empty buffer with one user, who must release it.
func New() *Buffer {
	b := &Buffer{memory: kept.Get().(*[]byte)}
	b.Bytes = (*b.memory)[:0]
	b.users.Store(1)
	return b
}

// Of returns a buffer with the bytes that write appends to it, for one user who must release it.
func Of(write func(dst []byte) ([]byte, error)) (*Buffer, error) {
	b := New()
	written, err := write(b.Bytes)
	if err != nil {
		b.Release()
		return nil, err
	}
	b.Bytes = written
	return b, nil
}

// Release ends one use.
func (b *Buffer) Release() {
	if b.users.Add(-1) > 0 {
		return
	}
	if cap(b.Bytes) <= mostKept {
		*b.memory = b.Bytes
		kept.Put(b.memory)
	}
	b.Bytes, b.memory = nil, nil
}

// Fill reads r to its end. length is the expected length, if it is known, and most the maximum; a longer body fails
// with ErrTooLarge.
func (b *Buffer) Fill(r io.Reader, length, most int64) error {
	if length > most {
		return ErrTooLarge
	}
	b.Bytes = slices.Grow(b.Bytes, max(int(length)+1, least)) // One more, to see the end without growing.
	for {
		if len(b.Bytes) == cap(b.Bytes) {
			b.Bytes = slices.Grow(b.Bytes, len(b.Bytes))
		}
		n, err := r.Read(b.Bytes[len(b.Bytes):cap(b.Bytes)])
		b.Bytes = b.Bytes[:len(b.Bytes)+n]
		switch {
		case int64(len(b.Bytes)) > most:
			return ErrTooLarge
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// Reader reads parts of the buffer, and any other bytes among the parts, in sequence. It is a use of its own, which
// Close ends.
func (b *Buffer) Reader(parts ...[]byte) io.ReadCloser {
	b.users.Add(1)
	return &reader{buffer: b, parts: parts}
}

// reader may be closed while it is read: a transport that gives up does so.
type reader struct {
	buffer *Buffer

	mu     sync.Mutex
	parts  [][]byte
	closed bool
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	for len(r.parts) > 0 {
		m := copy(p[n:], r.parts[0])
		r.parts[0] = r.parts[0][m:]
		n += m
		if len(r.parts[0]) > 0 {
			return n, nil
		}
		r.parts = r.parts[1:]
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.buffer.Release()
	}
	return nil
}
