package sagemaker

import (
	"cmp"
	"encoding/json"
	"io"
	"iter"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/awsstream"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// ReadEvents implements dialect.Codec: the payloads of frames are parts of a text of server-sent events, cut anywhere.
// An exception becomes the event of an error.
func (codec) ReadEvents(stream io.Reader) iter.Seq2[dialect.Event, error] {
	return func(yield func(dialect.Event, error) bool) {
		text := &payloads{frames: awsstream.NewReader(stream)}
		for event, err := range dialect.Events(text) {
			if text.failed != nil { // The event is cut off.
				break
			}
			if !yield(event, err) {
				return
			}
		}
		if text.failed != nil {
			yield(dialect.Event{Data: text.failed}, nil)
		}
	}
}

// payloads reads the payloads of frames, up to an exception.
type payloads struct {
	frames *awsstream.Reader
	left   []byte
	// failed is the event of the exception that has ended the text.
	failed []byte
}

// Read implements io.Reader.
func (p *payloads) Read(to []byte) (int, error) {
	for len(p.left) == 0 {
		if p.failed != nil {
			return 0, io.EOF
		}
		frame, err := p.frames.Next()
		switch {
		case err != nil:
			return 0, err
		case frame == nil:
			return 0, io.EOF
		case frame.Header(awsstream.HeaderKind) == awsstream.KindEvent:
			p.left = frame.Payload
		default:
			p.failed = failure(frame)
		}
	}
	n := copy(to, p.left)
	p.left = p.left[n:]
	return n, nil
}

// failure is the event of an exception, in the format.
func failure(frame *awsstream.Frame) []byte {
	var said struct{ Message string }
	_ = json.Unmarshal(frame.Payload, &said)
	var w jsonwrite.Writer
	w.BeginObject()
	w.Key("error")
	w.BeginObject()
	w.TextMember("message", cmp.Or(said.Message, frame.Header(awsstream.HeaderMessage), string(frame.Payload)))
	w.TextMember("type", cmp.Or(frame.Header(awsstream.HeaderException), frame.Header(awsstream.HeaderCode)))
	w.EndObject()
	w.EndObject()
	return w.Bytes()
}
