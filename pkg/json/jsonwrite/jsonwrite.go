// Package jsonwrite writes JSON by appending, with members in the order of the calls and with foreign JSON text passed
// through byte for byte.
//
// It is for documents whose bytes must be deterministic: requests to providers, whose prompt caches compare prefixes,
// and the JSON form of messages. It uses no reflection, and a text without anything to escape costs one copy.
package jsonwrite

import (
	"math"
	"slices"
	"strconv"
)

// Writer builds one JSON document. The zero value is ready to use. The caller is responsible for the structure of a
// document: a Key before each value of an object, no Key in a list.
type Writer struct {
	buf   []byte
	comma bool
}

// NewWriter returns a writer with room for size bytes.
func NewWriter(size int) *Writer { return &Writer{buf: make([]byte, 0, size)} }

// Append returns a writer that appends to dst, with room for size bytes.
func Append(dst []byte, size int) *Writer { return &Writer{buf: slices.Grow(dst, size)} }

// Bytes returns the written document. It is valid until the next call.
func (w *Writer) Bytes() []byte { return w.buf }

// Reset makes the writer that of a new document, in the room of the last one.
func (w *Writer) Reset() { w.buf, w.comma = w.buf[:0], false }

// String returns the written document as a string.
func (w *Writer) String() string { return string(w.buf) }

// BeginObject opens an object.
func (w *Writer) BeginObject() { w.open('{') }

// EndObject closes the object that was opened last.
func (w *Writer) EndObject() { w.close('}') }

// BeginList opens a list.
func (w *Writer) BeginList() { w.open('[') }

// EndList closes the list that was opened last.
func (w *Writer) EndList() { w.close(']') }

func (w *Writer) open(c byte) {
	w.separate()
	w.buf = append(w.buf, c)
	w.comma = false
}

func (w *Writer) close(c byte) {
	w.buf = append(w.buf, c)
	w.comma = true
}

func (w *Writer) separate() {
	if w.comma {
		w.buf = append(w.buf, ',')
	}
	w.comma = true
}

// Key writes the name of the next member.
func (w *Writer) Key(name string) {
	w.separate()
	w.buf = AppendText(w.buf, name)
	w.buf = append(w.buf, ':')
	w.comma = false
}

// Text writes a text.
func (w *Writer) Text(text string) {
	w.separate()
	w.buf = AppendText(w.buf, text)
}

// Raw writes a value that is JSON already. The caller vouches for it.
func (w *Writer) Raw(json string) {
	w.separate()
	w.buf = append(w.buf, json...)
}

// Int writes an integer.
func (w *Writer) Int(n int64) {
	w.separate()
	w.buf = strconv.AppendInt(w.buf, n, 10)
}

// Bool writes a truth value.
func (w *Writer) Bool(b bool) {
	w.separate()
	w.buf = strconv.AppendBool(w.buf, b)
}

// Null writes null.
func (w *Writer) Null() { w.Raw("null") }

// Float writes a number in the shortest form that reads back the same. A number that is not finite becomes null.
func (w *Writer) Float(f float64) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		w.Null()
		return
	}
	w.separate()
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	w.buf = strconv.AppendFloat(w.buf, f, format, -1, 64)
}
