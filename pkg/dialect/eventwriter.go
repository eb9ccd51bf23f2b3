package dialect

import (
	"io"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// EventWriter writes server-sent events whose data are JSON objects, for the StreamWriter of a format. Events are
// collected until Flush, so that each call of the StreamWriter is one write. Its buffers are used again.
type EventWriter struct {
	w      io.Writer
	err    error
	object jsonwrite.Writer
	events []byte
}

// NewEventWriter returns a writer to another.
func NewEventWriter(w io.Writer) *EventWriter { return &EventWriter{w: w} }

// Event adds an event whose data is an object with these members. A name that is empty is left out.
func (e *EventWriter) Event(name string, members func(*jsonwrite.Writer)) {
	e.object.Reset()
	e.object.BeginObject()
	members(&e.object)
	e.object.EndObject()
	e.Data(name, e.object.Bytes())
}

// Data adds an event with this data.
func (e *EventWriter) Data(name string, data []byte) { e.events = AppendEvent(e.events, name, data) }

// Ping implements StreamWriter: it writes a comment, which clients pass over.
func (e *EventWriter) Ping() error {
	e.events = append(e.events, ": waiting\n\n"...)
	return e.Flush()
}

// Flush writes the events. Once a write has failed, it fails with the same error, and nothing more is written.
func (e *EventWriter) Flush() error {
	if e.err == nil && len(e.events) > 0 {
		_, e.err = e.w.Write(e.events)
	}
	e.events = e.events[:0]
	return e.err
}
