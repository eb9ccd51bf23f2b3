package endpoint

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/evalfleet/evalfleet/pkg/chat/encode"
	"github.com/evalfleet/evalfleet/pkg/jsonscan"
)

const (
	// leastBuffer is what a buffer begins with where nothing says how long a body is.
	leastBuffer = 16 << 10
	// mostKept bounds the buffers that are kept for later.
	mostKept = 1 << 20
)

// buffers are kept for later, as pointers to slices.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// body is a request's body, read once. Its bytes are shared by all who send it on, and its buffer is used again when the last of them is done.
type body struct {
	buffer *[]byte
	users  atomic.Int32
}

// readBody reads a request's body, up to a bound. The caller must release it.
func readBody(r *http.Request, most int64) (*body, error) {
	tooLarge := refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body may have %d bytes", most))
	if r.ContentLength > most {
		return nil, tooLarge
	}
	b := &body{buffer: buffers.Get().(*[]byte)}
	b.users.Store(1)
	buffer := (*b.buffer)[:0]
	if room := max(int(r.ContentLength)+1, leastBuffer); cap(buffer) < room { // One more, to see the end without growing.
		buffer = make([]byte, 0, room)
	}
	for {
		if len(buffer) == cap(buffer) {
			buffer = slices.Grow(buffer, len(buffer))
		}
		n, err := r.Body.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		*b.buffer = buffer
		switch {
		case int64(len(buffer)) > most:
			b.release()
			return nil, tooLarge
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			b.release()
			return nil, refuse(http.StatusBadRequest, "the body did not come whole")
		}
	}
}

// bytes are the body. They are not to be changed, nor used after release.
func (b *body) bytes() []byte { return *b.buffer }

// release ends one use.
func (b *body) release() {
	if b.users.Add(-1) > 0 {
		return
	}
	if cap(*b.buffer) <= mostKept {
		buffers.Put(b.buffer)
	}
	b.buffer = nil
}

// spliced is a body with one value exchanged: the bytes before it, the new value, and the bytes after it.
type spliced struct {
	*body
	value jsonscan.Span
	text  []byte
}

// splice exchanges a value for a text.
func splice(b *body, value jsonscan.Span, text string) spliced {
	return spliced{body: b, value: value, text: encode.AppendText(nil, text)}
}

// size is the length of the body with the value exchanged.
func (s spliced) size() int64 {
	return int64(len(s.bytes()) - (s.value.End - s.value.Start) + len(s.text))
}

// reader reads the body from its beginning. It is a use of its own, which Close ends.
func (s spliced) reader() io.ReadCloser {
	s.users.Add(1)
	doc := s.bytes()
	return &splicedReader{spliced: s, parts: [3][]byte{doc[:s.value.Start], s.text, doc[s.value.End:]}}
}

// splicedReader may be closed while it is read: a transport that gives up does so.
type splicedReader struct {
	spliced

	mu     sync.Mutex
	parts  [3][]byte
	at     int
	closed bool
}

// Read implements io.Reader.
func (r *splicedReader) Read(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	for ; r.at < len(r.parts); r.at++ {
		m := copy(p[n:], r.parts[r.at])
		r.parts[r.at] = r.parts[r.at][m:]
		n += m
		if len(r.parts[r.at]) > 0 {
			return n, nil
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (r *splicedReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.release()
	}
	return nil
}
