package bedrockconverse

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// A stream is of frames: https://smithy.io/2.0/aws/amazon-eventstream.html. A frame has a length, headers, a payload and
// two checksums:
//
//	length (4) | length of headers (4) | checksum of these (4) | headers | payload | checksum of all (4)
//
// A frame becomes an event whose data is an object with one member: the payload, under the name of the frame's type. An
// exception becomes the member eventError, in the form of a body of an error.

// Headers of a frame, and kinds of frames.
const (
	headerKind      = ":message-type"
	headerEvent     = ":event-type"
	headerException = ":exception-type"
	headerCode      = ":error-code"
	headerMessage   = ":error-message"
	headerContent   = ":content-type"

	kindEvent     = "event"
	kindException = "exception"
	kindError     = "error"

	// eventError is the member that is an error.
	eventError = "error"
)

const (
	// beginBytes are those before the headers, checkedBytes those of them that their checksum covers.
	beginBytes   = 12
	checkedBytes = 8
	// leastBytes is the length of a frame without headers and payload.
	leastBytes = beginBytes + 4
)

// ReadEvents implements dialect.Codec. A frame that is cut off by the end of the stream is left out. A frame that is
// corrupt fails with *dialect.MalformedError.
func (Codec) ReadEvents(stream io.Reader) iter.Seq2[dialect.Event, error] {
	return func(yield func(dialect.Event, error) bool) {
		f := &frameReader{stream: stream}
		for {
			event, ok, err := f.next()
			if err != nil {
				yield(dialect.Event{}, err)
				return
			}
			if !ok || !yield(event, nil) {
				return
			}
		}
	}
}

// frameReader reads frames.
type frameReader struct {
	stream io.Reader
	// frame is the received part of a frame, payload and data are of the last event. All are used again.
	frame         bytes.Buffer
	payload, data []byte
}

// next reads the next event; ok is false at the end of the stream.
func (f *frameReader) next() (event dialect.Event, ok bool, err error) {
	f.frame.Reset()
	if ok, err := f.fill(beginBytes); !ok {
		return event, false, err
	}
	begin := f.frame.Bytes()
	length, headers := binary.BigEndian.Uint32(begin), binary.BigEndian.Uint32(begin[4:])
	switch {
	case crc32.ChecksumIEEE(begin[:checkedBytes]) != binary.BigEndian.Uint32(begin[checkedBytes:]):
		return event, false, corrupt(errors.New("its beginning has another checksum"))
	case length > dialect.MaxEventBytes:
		return event, false, dialect.ErrEventTooLarge
	case length < leastBytes || headers > length-leastBytes:
		return event, false, corrupt(fmt.Errorf("%d bytes with %d of headers", length, headers))
	}
	if ok, err := f.fill(int(length)); !ok {
		return event, false, err
	}
	message, err := eventstream.NewDecoder().Decode(bytes.NewReader(f.frame.Bytes()), f.payload[:0])
	if err != nil {
		return event, false, corrupt(err)
	}
	if message.Payload != nil {
		f.payload = message.Payload
	}
	if event, err = f.event(&message); err != nil {
		return event, false, corrupt(err)
	}
	return event, true, nil
}

// fill reads until so many bytes of the frame have come; ok is false if the stream ends before.
func (f *frameReader) fill(size int) (ok bool, err error) {
	_, err = f.frame.ReadFrom(io.LimitReader(f.stream, int64(size-f.frame.Len())))
	return err == nil && f.frame.Len() == size, err
}

func corrupt(cause error) error {
	return &dialect.MalformedError{Answer: "stream of Converse", Cause: fmt.Errorf("a frame is corrupt: %w", cause)}
}

// event is the event of a frame.
func (f *frameReader) event(m *eventstream.Message) (dialect.Event, error) {
	w := jsonwrite.Append(f.data[:0], len(m.Payload)+64)
	name, failed := header(m, headerEvent), failure{}
	switch kind := header(m, headerKind); kind {
	case kindEvent:
		if name == "" || name == eventError || !json.Valid(m.Payload) {
			return dialect.Event{}, fmt.Errorf("the event %q is no JSON", name)
		}
		w.BeginObject()
		w.RawMember(name, string(m.Payload))
		w.EndObject()
	case kindException:
		_ = json.Unmarshal(m.Payload, &failed)
		if failed.Message == "" {
			failed.Message = string(m.Payload)
		}
		name, failed.Type = eventError, header(m, headerException)
		failed.write(w)
	case kindError:
		name, failed = eventError, failure{Type: header(m, headerCode), Message: header(m, headerMessage)}
		failed.write(w)
	default:
		return dialect.Event{}, fmt.Errorf("it is of the kind %q", kind)
	}
	f.data = w.Bytes()
	return dialect.Event{Type: name, Data: f.data}, nil
}

// header is a header that is a text; empty if it is not there.
func header(m *eventstream.Message, name string) string {
	text, _ := m.Headers.Get(name).(eventstream.StringValue)
	return string(text)
}

// write writes the event of an error.
func (f *failure) write(w *jsonwrite.Writer) {
	w.BeginObject()
	w.Key(eventError)
	w.BeginObject()
	w.TextMember("__type", f.Type)
	w.TextMember("message", f.Message)
	w.EndObject()
	w.EndObject()
}

// frameWriter writes frames, each with one write. Once a write has failed, nothing more is written.
type frameWriter struct {
	w     io.Writer
	err   error
	frame bytes.Buffer
}

func (f *frameWriter) send(kind, typeHeader, name string, payload []byte) error {
	if f.err != nil {
		return f.err
	}
	f.frame.Reset()
	f.err = eventstream.NewEncoder().Encode(&f.frame, eventstream.Message{Headers: eventstream.Headers{
		{Name: typeHeader, Value: eventstream.StringValue(name)},
		{Name: headerContent, Value: eventstream.StringValue("application/json")},
		{Name: headerKind, Value: eventstream.StringValue(kind)},
	}, Payload: payload})
	if f.err == nil {
		_, f.err = f.w.Write(f.frame.Bytes())
	}
	return f.err
}
