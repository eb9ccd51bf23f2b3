package transport

import (
	"encoding/json"
	"io"
	"strconv"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// maxEvents bounds the events that are kept for a record, in bytes.
const maxEvents = 2 << 20

// Events stores a stream's events for a record of the call. Nil stores nothing.
type Events struct {
	list    []byte
	leftOut int
	// text is the received text, until the first event.
	text []byte
}

// NewEvents returns an Events if events are wanted, else nil.
func NewEvents(wanted bool) *Events {
	if !wanted {
		return nil
	}
	return &Events{}
}

// From returns a reader of a stream that stores its text until the first event: if there is no event, the record is the
// text.
func (e *Events) From(stream io.Reader) io.Reader {
	if e == nil {
		return stream
	}
	return io.TeeReader(stream, (*beginning)(e))
}

// beginning writes to the text of events.
type beginning Events

// Write implements io.Writer.
func (b *beginning) Write(p []byte) (int, error) {
	if len(b.list) == 0 {
		b.text = append(b.text, p[:min(len(p), maxText+1-len(b.text))]...) // One more, so that a record marks the cut.
	}
	return len(p), nil
}

// Add keeps the data of an event.
func (e *Events) Add(data []byte) {
	if e == nil {
		return
	}
	e.text = nil
	switch {
	case e.leftOut > 0 || len(e.list)+len(data) > maxEvents:
		e.leftOut++
		return
	case len(e.list) > 0:
		e.list = append(e.list, ',')
	}
	if json.Valid(data) {
		e.list = append(e.list, data...)
	} else {
		e.list = append(e.list, jsonwrite.AppendText(nil, string(data))...)
	}
}

// Document returns the stored events as a JSON object: `events`, and `events_left_out` if there were too many. If the
// stream had no events it is the text; nil if nothing is stored.
func (e *Events) Document() []byte {
	switch {
	case e == nil:
		return nil
	case len(e.text) > 0:
		return e.text
	}
	document := append([]byte(`{"events":[`), e.list...)
	document = append(document, ']')
	if e.leftOut > 0 {
		document = strconv.AppendInt(append(document, `,"events_left_out":`...), int64(e.leftOut), 10)
	}
	return append(document, '}')
}
