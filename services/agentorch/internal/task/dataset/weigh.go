package dataset

import (
	"github.com/evalfleet/evalfleet/pkg/bound"
)

// scales enforces the bounds on the decoded size of a dataset's rows.
type scales struct {
	rows int
	// left is how many values more the rows may have.
	left int
}

// document adds a row of JSON before it is decoded. The decoder reports invalid JSON.
func (s *scales) document(line int, text []byte) error {
	values, depth := weigh(text)
	if depth > bound.DatasetDepth {
		return lineError(line, "the row nests deeper than %d levels", bound.DatasetDepth)
	}
	return s.add(line, len(text), values)
}

// record adds a row of CSV.
func (s *scales) record(line int, cells []string) error {
	bytes := 0
	for _, cell := range cells {
		bytes += len(cell)
	}
	return s.add(line, bytes, 2*len(cells))
}

func (s *scales) add(line, bytes, values int) error {
	s.rows++
	s.left -= values
	switch {
	case bytes > bound.DatasetRowBytes:
		return rowTooLong(line)
	case values > bound.DatasetRowValues:
		return lineError(line, "the row has more than %d values, keys included: put them into a file of a sandbox", bound.DatasetRowValues)
	case s.rows > bound.DatasetRows:
		return lineError(line, "there are more than %d rows: split the file", bound.DatasetRows)
	case s.left < 0:
		return lineError(line, "the rows have too many values, keys included: leave out columns, or split the file")
	}
	return nil
}

func rowTooLong(line int) *Error {
	return lineError(line, "the row is longer than %d bytes: put long texts into a file of a sandbox", bound.DatasetRowBytes)
}

// weigh returns how many values and keys a JSON text has at most, and how deep it nests.
func weigh(text []byte) (values, depth int) {
	values = 1
	inText, level := false, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == ',' || c == ':':
			values++
		case c == '{' || c == '[':
			values++
			level++
			depth = max(depth, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return values, depth
}
