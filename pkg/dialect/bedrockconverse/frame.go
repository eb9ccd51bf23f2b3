package bedrockconverse

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/awsstream"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// A frame of a stream becomes an event whose data is an object with one member: the payload, under the name of the
// frame's type. An exception becomes the member eventError, in the form of a body of an error.

// eventError is the member that is an error.
const eventError = "error"

// ReadEvents implements dialect.Codec. A frame that is cut off by the end of the stream is left out. A frame that is
// corrupt fails with *dialect.MalformedError.
func (Codec) ReadEvents(stream io.Reader) iter.Seq2[dialect.Event, error] {
	return func(yield func(dialect.Event, error) bool) {
		frames := awsstream.NewReader(stream)
		var data []byte // used again
		for {
			frame, err := frames.Next()
			var event dialect.Event
			if err == nil && frame != nil {
				event, err = eventOf(data[:0], frame)
			}
			switch {
			case err != nil:
				yield(dialect.Event{}, err)
				return
			case frame == nil || !yield(event, nil):
				return
			}
			data = event.Data
		}
	}
}

// eventOf is the event of a frame, whose data it appends to dst.
func eventOf(dst []byte, frame *awsstream.Frame) (dialect.Event, error) {
	w := jsonwrite.Append(dst, len(frame.Payload)+64)
	name, failed := frame.Header(awsstream.HeaderEvent), failure{}
	switch kind := frame.Header(awsstream.HeaderKind); kind {
	case awsstream.KindEvent:
		if name == "" || name == eventError || !json.Valid(frame.Payload) {
			return dialect.Event{}, awsstream.Corrupt(fmt.Errorf("the event %q is no JSON", name))
		}
		w.BeginObject()
		w.RawMember(name, string(frame.Payload))
		w.EndObject()
	case awsstream.KindException:
		_ = json.Unmarshal(frame.Payload, &failed)
		if failed.Message == "" {
			failed.Message = string(frame.Payload)
		}
		name, failed.Type = eventError, frame.Header(awsstream.HeaderException)
		failed.write(w)
	case awsstream.KindError:
		name, failed = eventError, failure{Type: frame.Header(awsstream.HeaderCode), Message: frame.Header(awsstream.HeaderMessage)}
		failed.write(w)
	default:
		return dialect.Event{}, awsstream.Corrupt(fmt.Errorf("it is of the kind %q", kind))
	}
	return dialect.Event{Type: name, Data: w.Bytes()}, nil
}

// write writes the event of an error.
func (f *failure) write(w *jsonwrite.Writer) {
	w.BeginObject()
	w.TextObjectMember(eventError, "__type", f.Type, "message", f.Message)
	w.EndObject()
}
