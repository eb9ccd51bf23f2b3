package dialect

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
)

// Event is one event of a stream, which is a server-sent event in most formats. Its data is valid until the next event
// is read.
type Event struct {
	// Type is the event's name; empty if it has none.
	Type string
	Data []byte
}

// MaxEventBytes bounds one event.
const MaxEventBytes = 32 << 20

// ErrEventTooLarge is the error for an event over MaxEventBytes.
var ErrEventTooLarge = errors.New("an event of the stream is larger than 32 MiB")

// Events reads server-sent events as the HTML standard describes them. It skips comments, ids and retry times, and an
// event without data that is cut off before its blank line at the end of the stream. Such an event with data is
// yielded, since some servers omit the last blank line. It ends with the stream, and yields the error of a failed
// stream.
func Events(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 16<<10), MaxEventBytes)
		lines.Split((&lineSplitter{}).split)
		var event Event
		hasData, first := false, true
		for lines.Scan() {
			line := lines.Bytes()
			if first {
				line = bytes.TrimPrefix(line, []byte("\uFEFF"))
				first = false
			}
			if len(line) == 0 {
				if hasData && !yield(event, nil) {
					return
				}
				event, hasData = Event{Data: event.Data[:0]}, false
				continue
			}
			name, value, _ := bytes.Cut(line, []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(name) {
			case "event":
				event.Type = string(value)
			case "data":
				if hasData {
					event.Data = append(event.Data, '\n')
				}
				event.Data, hasData = append(event.Data, value...), true
			}
			if len(event.Data) > MaxEventBytes {
				yield(Event{}, ErrEventTooLarge)
				return
			}
		}
		switch err := lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(Event{}, ErrEventTooLarge)
		case err != nil:
			yield(Event{}, err)
		case hasData:
			yield(event, nil)
		}
	}
}

// ServerSentEvents is the part of a Codec that reads streams, for formats that use server-sent events.
type ServerSentEvents struct{}

// ReadEvents implements Codec.
func (ServerSentEvents) ReadEvents(stream io.Reader) iter.Seq2[Event, error] { return Events(stream) }

// AppendEvent appends a server-sent event. A name that is empty is left out. Data is JSON: line breaks between its
// tokens, which JSON of others may have, would end the event, and are dropped.
func AppendEvent(dst []byte, name string, data []byte) []byte {
	if name != "" {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	dst = append(dst, "data: "...)
	for {
		end := bytes.IndexAny(data, "\r\n")
		if end < 0 {
			return append(append(dst, data...), "\n\n"...)
		}
		dst, data = append(dst, data[:end]...), data[end+1:]
	}
}

// lineSplitter ends lines at \n, \r\n and \r. It looks at each byte of a line once, however little of it comes at a
// time.
type lineSplitter struct {
	// searched is how much of the line has come and has no end in it.
	searched int
}

// split is a bufio.SplitFunc.
func (s *lineSplitter) split(data []byte, atEOF bool) (advance int, token []byte, err error) {
	advance, token = splitLine(data, s.searched, atEOF)
	if s.searched = 0; advance == 0 {
		s.searched = len(bytes.TrimSuffix(data, []byte("\r")))
	}
	return advance, token, nil
}

// splitLine returns the first line of data, which has no end before from, and how much it takes with its end; nothing
// if more of it may come.
func splitLine(data []byte, from int, atEOF bool) (advance int, line []byte) {
	i := bytes.IndexAny(data[from:], "\r\n")
	if i >= 0 {
		i += from
	}
	switch {
	case i < 0 && atEOF && len(data) > 0:
		return len(data), data
	case i < 0:
		return 0, nil
	case data[i] == '\n':
		return i + 1, data[:i]
	case i+1 < len(data):
		if data[i+1] == '\n' {
			return i + 2, data[:i]
		}
		return i + 1, data[:i]
	case atEOF:
		return i + 1, data[:i]
	default:
		return 0, nil // whether \n follows is not known yet
	}
}
