package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/sys/unix"
)

const (
	// readBytes is the most that one read of a connection takes: a stream that comes quickly takes fewer of them.
	readBytes = 16 << 10
	// maxHeadBytes bounds the head of an answer.
	maxHeadBytes = 1 << 20
	// shortBody bounds a body that is written before the answer is read. A connection takes that much at once; a server
	// may answer before it has read a longer one.
	shortBody = 16 << 10
	// sentWithin bounds how much longer the writing of a request may take than its answer, if another is to follow.
	sentWithin = 50 * time.Millisecond
)

// conn is a connection. One exchange uses it at a time; close may be called at any time.
type conn struct {
	net.Conn
	address string
	reader  *bufio.Reader
	// left is how much may still be read.
	left int64
	// written gets the result of a request that is written beside the reading of its answer; nil if none is.
	written chan error
	// since is when it became idle.
	since time.Time

	raw syscall.RawConn
	// look looks at the next byte that was received, and leaves it there; looked is what came of it.
	look   func(fd uintptr)
	looked error
	closed sync.Once
}

func newConn(dialled net.Conn, address string) *conn {
	c := &conn{Conn: dialled, address: address, left: math.MaxInt64}
	c.reader = bufio.NewReaderSize(c, readBytes)
	if s, ok := dialled.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	var next [1]byte
	c.look = func(fd uintptr) { _, _, c.looked = unix.Recvfrom(int(fd), next[:], unix.MSG_PEEK|unix.MSG_DONTWAIT) }
	return c
}

func (c *conn) close() { c.closed.Do(func() { _ = c.Conn.Close() }) }

// Read implements io.Reader for the reader of answers.
func (c *conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeadTooLong
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// quiet reports whether an idle connection is still open and the server has sent nothing, which would be no answer to
// the next request.
func (c *conn) quiet() bool {
	if c.raw == nil {
		return false
	}
	err := c.raw.Control(c.look)
	return err == nil && errors.Is(c.looked, unix.EAGAIN)
}

// heads are buffers for the heads of requests.
var heads = sync.Pool{New: func() any { return new([]byte) }}

// writerAfter is a body in memory that writes itself after a head, all in one write if w is a connection.
type writerAfter interface {
	WriteAfter(head []byte, w io.Writer) error
	// Len is how many bytes are left.
	Len() int
}

var (
	errHeadTooLong = fmt.Errorf("the head of the answer is longer than %d bytes", maxHeadBytes)
	errBroken      = errors.New("the server closed the connection before it answered")
)

// roundTrip writes a request, closes its body, and reads the head of the answer. The body of a long request may still
// be written then.
func (c *conn) roundTrip(r *http.Request) (*http.Response, error) {
	head := heads.Get().(*[]byte)
	text, err := appendHead((*head)[:0], r)
	if *head = text; err != nil {
		heads.Put(head)
		closeBody(r)
		return nil, err
	}
	var failed error
	if r.ContentLength <= shortBody {
		failed = c.send(head, r)
	} else {
		c.written = make(chan error, 1)
		go func() {
			err := c.send(head, r)
			if c.written <- err; err != nil && !c.failedBy(err) {
				c.close() // There will be no answer to a part.
			}
		}()
	}
	if failed != nil && !c.failedBy(failed) {
		return nil, failed
	}
	answer, err := c.read(r)
	if err == nil {
		return answer, nil
	}
	select {
	case failed = <-c.written:
	default:
	}
	if failed != nil {
		err = failed // It came first.
	}
	return nil, err
}

// failedBy reports whether a request could not be written because the connection failed: the server may have answered
// before. Any other error is the body's, which may be read from a connection of its own.
func (c *conn) failedBy(err error) bool {
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Source == c.LocalAddr()
}

// send writes a head and the body of its request, and releases both.
func (c *conn) send(buffered *[]byte, r *http.Request) error {
	defer heads.Put(buffered)
	defer closeBody(r)
	head := *buffered
	if body, ok := r.Body.(writerAfter); ok {
		if n := int64(body.Len()); n != r.ContentLength {
			return wrongLength(n, r)
		}
		return body.WriteAfter(head, c.Conn)
	}
	_, err := c.Conn.Write(head)
	if err != nil || r.Body == nil || r.Body == http.NoBody {
		return err
	}
	n, err := io.Copy(struct{ io.Writer }{c.Conn}, io.LimitReader(r.Body, r.ContentLength)) // A failure is either's own.
	if err != nil {
		return err
	}
	more, err := io.Copy(io.Discard, r.Body)
	if n += more; err == nil && n != r.ContentLength {
		err = wrongLength(n, r)
	}
	return err
}

func wrongLength(n int64, r *http.Request) error {
	return fmt.Errorf("the body has %d bytes, and its announced length is %d", n, r.ContentLength)
}

// read reads the head of the answer, whose body is read from the connection.
func (c *conn) read(r *http.Request) (*http.Response, error) {
	c.left = maxHeadBytes
	for {
		_, err := c.reader.Peek(1)
		if errors.Is(err, io.EOF) {
			err = errBroken
		}
		if err != nil {
			return nil, err // ReadResponse would get another error: the kernel reports a reset only once.
		}
		answer, err := http.ReadResponse(c.reader, r)
		switch {
		case err != nil && c.left <= 0:
			return nil, errHeadTooLong
		case err != nil:
			return nil, err
		case answer.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the server changed the protocol, which was not asked for")
		case answer.StatusCode/100 != 1:
			c.left = math.MaxInt64
			return answer, nil
		}
	}
}

// sent reports whether the request has been written to its end. That may be seen a moment after the end of its answer.
func (c *conn) sent() bool {
	if c.written == nil {
		return true
	}
	late := time.NewTimer(sentWithin)
	defer late.Stop()
	select {
	case err := <-c.written:
		c.written = nil
		return err == nil
	case <-late.C:
		return false
	}
}

// defaults are the lines of headers that a request does not have. Without the second a server may choose an encoding.
var defaults = map[string]string{
	"User-Agent":      "User-Agent: Go-http-client/1.1\r\n",
	"Accept-Encoding": "Accept-Encoding: identity\r\n",
}

// appendHead appends the head of a request.
func appendHead(dst []byte, r *http.Request) ([]byte, error) {
	target := r.URL.RequestURI()
	if strings.ContainsFunc(target, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return dst, errors.New("the address has a control character")
	}
	dst = append(append(append(dst, r.Method...), ' '), target...)
	dst = append(append(append(dst, " HTTP/1.1\r\nHost: "...), hostOf(r)...), "\r\n"...)
	if r.ContentLength > 0 || r.Method == http.MethodPost {
		dst = append(strconv.AppendInt(append(dst, "Content-Length: "...), r.ContentLength, 10), "\r\n"...)
	}
	for name, line := range defaults {
		if _, ok := r.Header[name]; !ok {
			dst = append(dst, line...)
		}
	}
	for name, values := range r.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue // They are the transport's, as in net/http.
		case "User-Agent":
			if r.UserAgent() == "" {
				continue
			}
			values = values[:1] // As in net/http.
		}
		if !httpguts.ValidHeaderFieldName(name) {
			return dst, fmt.Errorf("%q is no name of a header", name)
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return dst, fmt.Errorf("the value of the header %s has a control character", name)
			}
			dst = append(append(append(append(dst, name...), ": "...), value...), "\r\n"...)
		}
	}
	return append(dst, "\r\n"...), nil
}
