package dataset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// row is one record of a file.
type row struct {
	// line is the first line of the row, from 1.
	line    int
	columns *orderedjson.Object
	// cells is set if all values are texts, so that an empty text may mean an absent value.
	cells bool
}

// lineError returns a fault of one line.
func lineError(line int, format string, args ...any) *Error {
	e := problem(format, args...)
	e.Line = line
	return e
}

// jsonLines yields the objects of a file with one a line. A blank line is a fault, since it may be a row that was lost.
func jsonLines(r *bufio.Reader, s *scales) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		for line := 1; ; line++ {
			text, err := readLine(r, line)
			if err != nil && !errors.Is(err, io.EOF) {
				yield(row{}, err)
				return
			}
			if len(text) == 0 {
				return
			}
			object, fault := jsonLine(line, text, s)
			if fault != nil {
				yield(row{}, fault)
				return
			}
			if !yield(row{line: line, columns: object}, nil) || err != nil {
				return
			}
		}
	}
}

// readLine reads a line with its end, if it has one.
func readLine(r *bufio.Reader, line int) (text []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(text)+len(part) > bound.DatasetRowBytes+1 {
			return nil, rowTooLong(line)
		}
		text = append(text, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}

func jsonLine(line int, text []byte, s *scales) (*orderedjson.Object, error) {
	text = trimMark(text)
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, lineError(line, "the line is blank: remove it, or complete the row")
	}
	if !utf8.Valid(text) {
		return nil, lineError(line, "the line is not UTF-8: convert the file")
	}
	if err := s.document(line, text); err != nil {
		return nil, err
	}
	object, err := orderedjson.DecodeObject(withConstants(text))
	if err != nil {
		return nil, lineError(line, "the line is no JSON object: %v", err)
	}
	return object, nil
}

// trimMark removes a byte order mark or a record separator (RFC 7464) at the start of text.
func trimMark(text []byte) []byte {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	return bytes.TrimPrefix(text, []byte("\x1e"))
}

// jsonDocument yields the objects of a list, or the one object that a file is.
func jsonDocument(r *bufio.Reader, s *scales) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		text, err := io.ReadAll(r)
		if err != nil {
			yield(row{}, err)
			return
		}
		text = trimMark(text)
		if !utf8.Valid(text) {
			yield(row{}, problem("it is not UTF-8: convert the file"))
			return
		}
		text = withConstants(text)
		if !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("[")) {
			if err := s.document(1, text); err != nil {
				yield(row{}, err)
				return
			}
			object, err := orderedjson.DecodeObject(text)
			if err != nil {
				yield(row{}, problem("it is neither a JSON list of objects nor one object: %v; for one object a line name it .jsonl", err))
				return
			}
			yield(row{line: 1, columns: object}, nil)
			return
		}
		jsonList(text, s, yield)
	}
}

// jsonList yields the objects of a list with the lines on which they begin.
func jsonList(text []byte, s *scales, yield func(row, error) bool) {
	dec := json.NewDecoder(bytes.NewReader(text))
	// The text begins with a bracket.
	_, _ = dec.Token()
	line, counted := 1, 0
	countTo := func(offset int) {
		line += bytes.Count(text[counted:offset], []byte("\n"))
		counted = offset
	}
	for dec.More() {
		start := int(dec.InputOffset())
		start += len(text[start:]) - len(bytes.TrimLeft(text[start:], ", \t\r\n"))
		countTo(start)
		var item json.RawMessage
		if err := dec.Decode(&item); err != nil {
			yield(row{}, lineError(line, "it is no JSON: %v", err))
			return
		}
		if err := s.document(line, item); err != nil {
			yield(row{}, err)
			return
		}
		object, err := orderedjson.DecodeObject(item)
		if err != nil {
			yield(row{}, lineError(line, "the item is no JSON object: %v", err))
			return
		}
		if !yield(row{line: line, columns: object}, nil) {
			return
		}
	}
	if _, err := dec.Token(); err != nil {
		countTo(len(text))
		yield(row{}, lineError(line, "the JSON list is not closed: %v", err))
		return
	}
	countTo(int(dec.InputOffset()))
	if rest := bytes.TrimSpace(text[counted:]); len(rest) > 0 {
		yield(row{}, lineError(line, "there is text after the JSON list"))
	}
}

// withConstants replaces the constants that Python writes into JSON for numbers that JSON cannot hold: NaN, which
// datasets use for a missing value, by null, and the infinities by numbers beyond all limits.
func withConstants(text []byte) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	var out bytes.Buffer
	inString := false
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		switch {
		case inString && text[i] == '\\' && i+1 < len(text):
			out.WriteByte(text[i])
			i++
		case text[i] == '"':
			inString = !inString
		case inString:
		case bytes.HasPrefix(rest, []byte("NaN")):
			out.WriteString("null")
			i += len("NaN") - 1
			continue
		case bytes.HasPrefix(rest, []byte("Infinity")):
			out.WriteString("1e999")
			i += len("Infinity") - 1
			continue
		}
		out.WriteByte(text[i])
	}
	return out.Bytes()
}
