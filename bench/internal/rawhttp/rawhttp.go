// Package rawhttp reads and writes HTTP/1.1 messages, no more of it than a load generator and a scripted server need, so
// that both cost little beside what is measured between them: one write for each message, and no header is kept.
package rawhttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// bufferSize is that of a connection's reader. It bounds a line of a head.
const bufferSize = 32 << 10

// Head is the beginning of a request or a response.
type Head struct {
	// First are the two words at the beginning of the first line: method and target, or protocol and status.
	First [2]string
	// Length is that of the body; 0 if none is said.
	Length int
	// Chunked means that the body comes in chunks.
	Chunked bool
}

// Reader reads the messages of a connection. It is not safe for concurrent use.
type Reader struct {
	in   *bufio.Reader
	body []byte
}

// NewReader returns a reader of a connection.
func NewReader(in io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(in, bufferSize)} }

// Head reads a head.
func (r *Reader) Head() (h Head, err error) {
	line, err := r.in.ReadSlice('\n')
	if err != nil {
		return h, err
	}
	words := bytes.SplitN(bytes.TrimSpace(line), []byte(" "), 3)
	if len(words) < 2 {
		return h, fmt.Errorf("no first line of HTTP: %q", line)
	}
	h.First = [2]string{string(words[0]), string(words[1])}
	for {
		line, err = r.in.ReadSlice('\n')
		if err != nil {
			return h, err
		}
		name, value, named := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		switch {
		case !named:
			return h, nil
		case bytes.EqualFold(name, []byte("Content-Length")):
			if h.Length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return h, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			h.Chunked = bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked"))
		}
	}
}

// Body reads the body that follows a head. It is valid until the next call. It calls piece, unless that is nil, with
// each chunk, and then returns nothing.
func (r *Reader) Body(h Head, piece func([]byte)) ([]byte, error) {
	if !h.Chunked {
		return r.take(h.Length)
	}
	r.body = r.body[:0]
	for {
		line, err := r.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return nil, err
		}
		if size == 0 {
			_, err := r.in.Discard(len("\r\n"))
			return r.body, err
		}
		kept := len(r.body)
		r.body = append(r.body, make([]byte, size)...)
		if _, err := io.ReadFull(r.in, r.body[kept:]); err != nil {
			return nil, err
		}
		if _, err := r.in.Discard(len("\r\n")); err != nil {
			return nil, err
		}
		if piece != nil {
			piece(r.body[kept:])
			r.body = r.body[:kept]
		}
	}
}

func (r *Reader) take(n int) ([]byte, error) {
	if cap(r.body) < n {
		r.body = make([]byte, n)
	}
	r.body = r.body[:n]
	_, err := io.ReadFull(r.in, r.body)
	return r.body, err
}

// ErrStatus is the error for an answer that is not 200.
var ErrStatus = errors.New("not 200")

// Answer reads a response, and fails with ErrStatus and the body if it has another status than 200. piece takes its
// chunks, as Body does.
func (r *Reader) Answer(piece func([]byte)) ([]byte, error) {
	h, err := r.Head()
	if err != nil {
		return nil, err
	}
	if h.First[1] != "200" {
		body, _ := r.Body(h, nil) // What has arrived says enough.
		return nil, fmt.Errorf("%w: %s: %s", ErrStatus, h.First[1], body)
	}
	return r.Body(h, piece)
}

// Post returns a request with a JSON body as bytes. Token may be empty.
func Post(host, path, token, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: */*\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", path, host, token, len(body), body)
}

// JSON returns a response with a JSON body as bytes.
func JSON(body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// Events is the head of a response with server-sent events in chunks, and End is what ends them.
const (
	Events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
	End    = "0\r\n\r\n"
)

// Chunk returns a chunk.
func Chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
