// Package httpdeadline ends answers whose client does not read them, and requests whose client does not send them. A
// server is otherwise held for as long as a client likes: by its goroutine, and by all that the answer holds upstream.
package httpdeadline

import (
	"net/http"
	"time"
)

// Writer is an http.ResponseWriter whose client has to go on reading: a write fails when it cannot be done within a
// time, and so does all after it. A client that is only slow is not cut off, since each write has the time anew. It is
// for one goroutine.
type Writer struct {
	http.ResponseWriter

	control *http.ResponseController
	within  time.Duration
	until   time.Time
}

// NewWriter returns a writer over w. within bounds each write; zero is no bound. The server lifts the bound when the
// handler has returned and the rest was sent.
func NewWriter(w http.ResponseWriter, within time.Duration) *Writer {
	return &Writer{ResponseWriter: w, control: http.NewResponseController(w), within: within}
}

// Write writes to the answer.
func (w *Writer) Write(b []byte) (int, error) {
	if err := w.arm(); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
}

// FlushError sends what was written.
func (w *Writer) FlushError() error {
	if err := w.arm(); err != nil {
		return err
	}
	return w.control.Flush()
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// arm sets the deadline. One that has most of its time left is left alone: setting it costs more than a small write.
func (w *Writer) arm() error {
	if w.within == 0 {
		return nil
	}
	now := time.Now()
	if w.until.Sub(now) > w.within*3/4 {
		return nil
	}
	w.until = now.Add(w.within)
	return w.control.SetWriteDeadline(w.until)
}
