// Package awsstream reads and writes the frames of Amazon's streams: https://smithy.io/2.0/aws/amazon-eventstream.html.
// A frame has a length, headers, a payload and two checksums:
//
//	length (4) | length of headers (4) | checksum of these (4) | headers | payload | checksum of all (4)
//
// The framing is the vendor's library; lengths are checked here before they are trusted.
package awsstream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/evalfleet/evalfleet/pkg/dialect"
)

// Headers of a frame.
const (
	HeaderKind      = ":message-type"
	HeaderEvent     = ":event-type"
	HeaderException = ":exception-type"
	HeaderCode      = ":error-code"
	HeaderMessage   = ":error-message"

	headerContent = ":content-type"
)

// Kinds of frames.
const (
	KindEvent     = "event"
	KindException = "exception"
	KindError     = "error"
)

const (
	// beginBytes are those before the headers, checkedBytes those of them that their checksum covers.
	beginBytes   = 12
	checkedBytes = 8
	// leastBytes is the length of a frame without headers and payload.
	leastBytes = beginBytes + 4
)

// Frame is one frame. Its payload is valid until the next one is read.
type Frame struct {
	Payload []byte

	headers eventstream.Headers
}

// Header is a header that is a text; empty if it is not there.
func (f *Frame) Header(name string) string {
	text, _ := f.headers.Get(name).(eventstream.StringValue)
	return string(text)
}

// Reader reads the frames of one stream.
type Reader struct {
	stream io.Reader
	// frame is the received part of a frame, payload is that of the last one. Both are used again.
	frame   bytes.Buffer
	payload []byte
}

// NewReader returns a reader of a stream.
func NewReader(stream io.Reader) *Reader { return &Reader{stream: stream} }

// Next reads the next frame; nil at the end of the stream, which also leaves out a frame that it cuts off. It fails
// with *dialect.MalformedError for a frame that is corrupt, with dialect.ErrEventTooLarge, and with the stream's error.
func (r *Reader) Next() (*Frame, error) {
	r.frame.Reset()
	if ok, err := r.fill(beginBytes); !ok {
		return nil, err
	}
	begin := r.frame.Bytes()
	length, headers := binary.BigEndian.Uint32(begin), binary.BigEndian.Uint32(begin[4:])
	switch {
	case crc32.ChecksumIEEE(begin[:checkedBytes]) != binary.BigEndian.Uint32(begin[checkedBytes:]):
		return nil, Corrupt(errors.New("its beginning has another checksum"))
	case length > dialect.MaxEventBytes:
		return nil, dialect.ErrEventTooLarge
	case length < leastBytes || headers > length-leastBytes:
		return nil, Corrupt(fmt.Errorf("%d bytes with %d of headers", length, headers))
	}
	if ok, err := r.fill(int(length)); !ok {
		return nil, err
	}
	message, err := eventstream.NewDecoder().Decode(bytes.NewReader(r.frame.Bytes()), r.payload[:0])
	if err != nil {
		return nil, Corrupt(err)
	}
	if message.Payload != nil {
		r.payload = message.Payload
	}
	return &Frame{Payload: message.Payload, headers: message.Headers}, nil
}

// fill reads until so many bytes of the frame have come; ok is false if the stream ends before.
func (r *Reader) fill(size int) (ok bool, err error) {
	_, err = r.frame.ReadFrom(io.LimitReader(r.stream, int64(size-r.frame.Len())))
	return err == nil && r.frame.Len() == size, err
}

// Corrupt is the error for a frame that is not what it should be.
func Corrupt(cause error) error {
	return &dialect.MalformedError{Answer: "stream of AWS", Cause: fmt.Errorf("a frame is corrupt: %w", cause)}
}

// Writer writes frames, each with one write. Once a write has failed, nothing more is written.
type Writer struct {
	w     io.Writer
	err   error
	frame bytes.Buffer
}

// NewWriter returns a writer to another.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Err returns the error of a write that has failed.
func (w *Writer) Err() error { return w.err }

// Send writes a frame of a kind, whose name is in a header and whose payload is JSON.
func (w *Writer) Send(kind, header, name string, payload []byte) error {
	if w.err != nil {
		return w.err
	}
	w.frame.Reset()
	w.err = eventstream.NewEncoder().Encode(&w.frame, eventstream.Message{Headers: eventstream.Headers{
		{Name: header, Value: eventstream.StringValue(name)},
		{Name: headerContent, Value: eventstream.StringValue("application/json")},
		{Name: HeaderKind, Value: eventstream.StringValue(kind)},
	}, Payload: payload})
	if w.err == nil {
		_, w.err = w.w.Write(w.frame.Bytes())
	}
	return w.err
}
