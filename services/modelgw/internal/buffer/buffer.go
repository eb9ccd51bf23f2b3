// Package buffer pools buffers for the bodies of requests and answers: bodies are long, and a new buffer for each would
// be the largest cost of the garbage collector in a call.
package buffer

import (
	"errors"
	"io"
	"math/bits"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// least is the initial size of a buffer for a body whose length is unknown.
	least = 16 << 10
	// leastKept and mostKept bound the buffers that are kept for later, in bits of their size. A longer body begins
	// with the largest of them and grows as it arrives: its announced length costs nothing.
	leastKept, mostKept = 12, 20
)

// ErrTooLarge is the error for a body larger than its bound.
var ErrTooLarge = errors.New("the body is too large")

// kept are buffers for later, as pointers to slices, by the bits of their size: a short body must not occupy the buffer
// of a long one.
var kept [mostKept - leastKept + 1]sync.Pool

// Buffer holds the bytes of a body. Several users may share it, as long as none modifies it; its memory is reused once
// the last of them has released it.
type Buffer struct {
	// Bytes are empty at first, and grow by append or Grow. They are not to be used after Release.
	Bytes []byte

	// from is where the memory of Bytes was kept, for the next time; nil if it is new.
	from  *[]byte
	users atomic.Int32
}

// New returns an empty buffer with one user, who must release it.
func New() *Buffer {
	b := &Buffer{}
	b.users.Store(1)
	return b
}

// Of returns a buffer with the bytes that write appends to it, for one user who must release it. Room is how many there
// will be, by a guess: a buffer that write need not grow is one of those that are kept.
func Of(room int, write func(dst []byte) ([]byte, error)) (*Buffer, error) {
	b := New()
	b.Grow(max(room, least))
	written, err := write(b.Bytes)
	if err != nil {
		b.Release()
		return nil, err
	}
	b.Bytes = written
	return b, nil
}

// Grow makes room for n more bytes. It must not be called while there are other users; slices of Bytes from before are
// not to be used any more.
func (b *Buffer) Grow(n int) {
	if cap(b.Bytes)-len(b.Bytes) >= n {
		return
	}
	old, from, size := b.Bytes, b.from, len(b.Bytes)+n
	b.from = nil
	if class := max(bits.Len(uint(size-1)), leastKept); class > mostKept {
		b.Bytes = slices.Grow(old, n)
	} else if memory, ok := kept[class-leastKept].Get().(*[]byte); ok {
		b.Bytes, b.from = append((*memory)[:0], old...), memory
	} else {
		b.Bytes = append(make([]byte, 0, 1<<class), old...)
	}
	keep(old, from)
}

// keep keeps memory for later, at a place; nil is a new one.
func keep(memory []byte, at *[]byte) {
	class := bits.Len(uint(cap(memory))) - 1
	if class < leastKept || class > mostKept {
		return
	}
	if at == nil {
		at = new([]byte)
	}
	*at = memory
	kept[class-leastKept].Put(at)
}

// Release ends one use.
func (b *Buffer) Release() {
	if b.users.Add(-1) > 0 {
		return
	}
	keep(b.Bytes, b.from)
	b.Bytes, b.from = nil, nil
}

// Fill reads r to its end. length is the expected length, if it is known, and most the maximum; a longer body fails
// with ErrTooLarge.
func (b *Buffer) Fill(r io.Reader, length, most int64) error {
	if length > most {
		return ErrTooLarge
	}
	room := int64(least)
	if length >= 0 {
		room = min(length+1, 1<<mostKept) // One more, to see the end without growing.
	}
	b.Grow(int(room))
	for {
		if len(b.Bytes) == cap(b.Bytes) {
			b.Grow(len(b.Bytes))
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
	parts  net.Buffers
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

// Len returns how many bytes are left.
func (r *reader) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := 0
	for _, part := range r.parts {
		left += len(part)
	}
	return left
}

// WriteAfter writes a head and all that is left, in one write if w is a connection. Close does not wait for it.
func (r *reader) WriteAfter(head []byte, w io.Writer) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return http.ErrBodyReadAfterClose
	}
	parts := slices.Concat(net.Buffers{head}, r.parts)
	r.parts = nil
	r.buffer.users.Add(1)
	r.mu.Unlock()
	defer r.buffer.Release()
	if !gathers {
		_, err := w.Write(slices.Concat(parts...))
		return err
	}
	_, err := parts.WriteTo(w)
	return err
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
