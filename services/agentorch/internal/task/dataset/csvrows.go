package dataset

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

// csvReader splits CSV into records as Python's csv module does: a cell that begins with a quote ends at the next
// single quote and may hold delimiters, line breaks and doubled quotes; quotes elsewhere are text. Line breaks of any
// kind end a record and become \n within a cell.
type csvReader struct {
	r         *bufio.Reader
	delimiter rune
	// line is the physical line that is read next, from 1.
	line int
	// left is how many bytes more the record may have.
	left int
}

// next returns the cells of the next record and the line on which it begins. A blank line is a record without cells. At
// the end it fails with io.EOF.
func (c *csvReader) next() (cells []string, line int, err error) {
	line, c.left = c.line, bound.DatasetRowBytes
	start, err := c.r.Peek(1)
	if err != nil {
		return nil, line, err
	}
	if start[0] == '\n' || start[0] == '\r' {
		_, err := c.rune()
		return nil, line, err
	}
	for more := true; more; {
		var cell string
		if cell, more, err = c.cell(); err != nil {
			return nil, line, err
		}
		if cells = append(cells, cell); len(cells) > bound.DatasetRowValues/2 {
			return nil, line, lineError(line, "the row has more than %d cells", bound.DatasetRowValues/2)
		}
	}
	return cells, line, nil
}

// cell reads one cell, up to the end of the file at the latest, and reports whether another cell follows in its record.
func (c *csvReader) cell() (text string, more bool, err error) {
	var b strings.Builder
	r, err := c.rune()
	if err == nil && r == '"' {
		if err := c.quoted(&b); err != nil {
			return "", false, err
		}
		r, err = c.rune()
	}
	for ; err == nil; r, err = c.rune() {
		if r == c.delimiter || r == '\n' {
			return b.String(), r == c.delimiter, nil
		}
		b.WriteRune(r)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b.String(), false, err
}

// quoted reads the rest of a quoted part, behind its opening quote, up to its closing one.
func (c *csvReader) quoted(b *strings.Builder) error {
	opened := c.line
	for {
		r, err := c.rune()
		if errors.Is(err, io.EOF) {
			return lineError(opened, "a quote is opened and never closed: close it, or double it if it is text")
		}
		if err != nil {
			return err
		}
		if r == '"' {
			next, err := c.r.Peek(1)
			if err != nil || next[0] != '"' {
				return nil
			}
			// A doubled quote is one; reading it cannot fail after the peek.
			_, _ = c.r.ReadByte()
		}
		b.WriteRune(r)
	}
}

// rune reads one character, with \r and \r\n as \n, and counts lines.
func (c *csvReader) rune() (rune, error) {
	r, size, err := c.r.ReadRune()
	if err != nil {
		return 0, err
	}
	if r == utf8.RuneError && size == 1 {
		return 0, lineError(c.line, "the line is not UTF-8: convert the file")
	}
	if c.left -= size; c.left < 0 {
		return 0, rowTooLong(c.line)
	}
	if r == '\r' {
		if next, err := c.r.Peek(1); err == nil && next[0] == '\n' {
			_, _ = c.r.ReadByte() // cannot fail after the peek
		}
		r = '\n'
	}
	if r == '\n' {
		c.line++
	}
	return r, nil
}

// csvRecords yields the records of a CSV file below its header. Blank lines and records of blank cells are no rows.
func csvRecords(r *bufio.Reader, p *plan, opts Options, s *scales) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		delimiter := ','
		if opts.Delimiter != "" {
			var size int
			delimiter, size = utf8.DecodeRuneInString(opts.Delimiter)
			if size != len(opts.Delimiter) || strings.ContainsRune("\"\r\n", delimiter) {
				yield(row{}, problem("the delimiter %q is not one character, or is a quote or line break", opts.Delimiter))
				return
			}
		}
		if mark, err := r.Peek(len("\ufeff")); err == nil && string(mark) == "\ufeff" {
			_, _ = r.Discard(len(mark)) // cannot fail after the peek
		}
		c := &csvReader{r: r, delimiter: delimiter, line: 1}
		columns, line, err := header(c, opts.Columns)
		if err == nil && columns != nil {
			err = checkHeader(columns, line, p)
		}
		if err != nil || columns == nil {
			if err != nil {
				yield(row{}, err)
			}
			return
		}
		csvRows(c, columns, s, yield)
	}
}

// header returns the names of the columns and the line that they are on; nil for an empty file.
func header(c *csvReader, given []string) (columns []string, line int, err error) {
	if given != nil {
		return given, 0, nil
	}
	for columns == nil {
		columns, line, err = c.next()
		if errors.Is(err, io.EOF) {
			return nil, line, nil
		}
		if err != nil {
			return nil, line, err
		}
	}
	return columns, line, nil
}

// checkHeader refuses duplicate names, one of which would be lost, and a plan with missing columns.
func checkHeader(columns []string, line int, p *plan) error {
	seen := map[string]bool{}
	for _, name := range columns {
		if seen[name] && name != "" {
			return lineError(line, "two columns are named %q: rename one", name)
		}
		seen[name] = true
	}
	if fault := p.checkColumns(columns); fault != nil {
		fault.Line = line
		return fault
	}
	return nil
}

func csvRows(c *csvReader, columns []string, s *scales, yield func(row, error) bool) {
	for {
		cells, line, err := c.next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			yield(row{}, err)
			return
		}
		if cells == nil {
			continue
		}
		if len(cells) != len(columns) {
			yield(row{}, lineError(line, "the row has %d cells where there are %d columns (%s): quote cells that hold the delimiter, and complete the row",
				len(cells), len(columns), strings.Join(columns, ", ")))
			return
		}
		if !slices.ContainsFunc(cells, func(cell string) bool { return pytext.Trim(cell) != "" }) {
			continue
		}
		if err := s.record(line, cells); err != nil {
			yield(row{}, err)
			return
		}
		object := &orderedjson.Object{}
		for i, name := range columns {
			object.Set(name, cells[i])
		}
		if !yield(row{line: line, columns: object, cells: true}, nil) {
			return
		}
	}
}
