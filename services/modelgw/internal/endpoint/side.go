package endpoint

import (
	"bytes"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
)

// maxSideBytes bounds what the side reader keeps of an answer; the usage of a longer answer is estimated by its length.
const maxSideBytes = 8 << 20

// mostAhead bounds the room that is made for an answer by its announced length alone.
const mostAhead = 1 << 20

// sideReader reads an answer beside its way to the client.
type sideReader struct {
	// events means that it is a stream.
	events bool
	codec  dialect.Codec
	facts  *dialect.Facts

	// passed is the length of the answer so far.
	passed int64
	// kept is the current partial line, or all of an answer that is not a stream.
	kept []byte
	// buffer is where kept began.
	buffer *buffer.Buffer
	// encoded means that the answer has an encoding that is not decoded here.
	encoded bool
	// full means that the limit was exceeded: of a line the rest is skipped, of an answer everything.
	full bool
}

// newSideReader returns a reader of one answer. The caller must end it.
func newSideReader(events bool, codec dialect.Codec, facts *dialect.Facts) *sideReader {
	s := &sideReader{events: events, codec: codec, facts: facts, buffer: buffer.New()}
	s.kept = s.buffer.Bytes
	return s
}

var (
	dataField = []byte("data:")
	lineEnd   = []byte("\n")
)

// room returns where to read the next piece of the answer so that it need not be copied: the side reader's own memory;
// nil if what is read is not kept. length is that of the answer if it is known.
func (s *sideReader) room(length int64) []byte {
	if s.events || s.full || len(s.kept)+chunkBytes > maxSideBytes {
		return nil
	}
	wanted := chunkBytes
	if length >= 0 { // One more, to see the end.
		wanted = int(min(max(length+1-int64(len(s.kept)), 1), mostAhead))
	}
	if cap(s.kept)-len(s.kept) < wanted {
		s.buffer.Bytes = s.kept
		s.buffer.Grow(max(wanted, len(s.kept)))
		s.kept = s.buffer.Bytes
	}
	return s.kept[len(s.kept):min(cap(s.kept), maxSideBytes)]
}

// add takes a piece of the answer.
func (s *sideReader) add(piece []byte) {
	if len(piece) == 0 {
		return
	}
	s.passed += int64(len(piece))
	if !s.events {
		if end := len(s.kept) + len(piece); !s.full && end <= cap(s.kept) && &s.kept[:end][end-1] == &piece[len(piece)-1] {
			s.kept = s.kept[:end] // It was read directly into the kept part.
			return
		}
		s.keep(piece)
		return
	}
	for {
		line, rest, ended := bytes.Cut(piece, lineEnd)
		if !ended {
			s.keep(line)
			return
		}
		if len(s.kept) == 0 && !s.full {
			s.line(line)
		} else {
			s.keep(line)
			s.line(s.kept)
		}
		s.kept, s.full, piece = s.kept[:0], false, rest
	}
}

func (s *sideReader) keep(piece []byte) {
	if s.full = s.full || len(s.kept)+len(piece) > maxSideBytes; !s.full {
		s.kept = append(s.kept, piece...)
	}
}

// line takes a line of a stream. Vendors write each event's data as one line.
func (s *sideReader) line(line []byte) {
	if data, ok := bytes.CutPrefix(line, dataField); ok && !s.full {
		s.codec.ScanUsage(bytes.TrimSpace(data), s.facts)
	}
}

// end handles the end of the answer, and reports whether the answer is complete: an answer that cannot be read counts
// as complete.
func (s *sideReader) end() (whole bool) {
	defer func() {
		s.buffer.Bytes = s.kept
		s.buffer.Release()
	}()
	if s.encoded || s.full && !s.events {
		s.facts.Pieces = min(s.passed/bytesPerToken, mostTokens)
	}
	switch {
	case s.encoded:
		return true
	case s.events:
		s.line(s.kept)
		return s.facts.Ended || s.facts.Failed
	case s.full:
		return true
	default:
		s.codec.ScanUsage(s.kept, s.facts)
		return closes(s.kept)
	}
}

// opens reports whether an answer begins as one does: as a JSON object, or as events. Blanks alone may become one.
func opens(piece []byte) (plausible, events bool) {
	begun := bytes.TrimLeft(piece, blanks)
	for _, field := range [][]byte{dataField, []byte("event:"), []byte(":")} {
		if bytes.HasPrefix(begun, field) {
			return true, true
		}
	}
	return len(piece) > 0 && (len(begun) == 0 || begun[0] == '{'), false
}

// closes reports whether a document ends as a JSON object does. It does not parse the document: one that breaks off
// right after a brace counts as whole.
func closes(doc []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(doc, blanks), []byte("{")) && bytes.HasSuffix(bytes.TrimRight(doc, blanks), []byte("}"))
}

const blanks = " \t\r\n"
