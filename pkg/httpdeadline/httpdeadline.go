// Package httpdeadline ends answers whose client does not read them, and requests whose client does not send them.
// Otherwise a client could occupy a server indefinitely: its goroutine, and all upstream resources of the answer.
package httpdeadline

import (
	"net/http"
	"time"
)

// Writer is an http.ResponseWriter whose client has to keep reading: a write that exceeds its time fails, and so do all
// later ones. A slow client is not cut off, since each write has the full time. It is not safe for concurrent use.
type Writer struct {
	http.ResponseWriter

	control http.ResponseController
	within  time.Duration
	until   time.Time
}

// NewWriter returns a writer over w. within bounds each write; zero is no bound. The server lifts the bound once the
// handler has returned and the rest was sent.
func NewWriter(w http.ResponseWriter, within time.Duration) *Writer {
	return &Writer{ResponseWriter: w, control: *http.NewResponseController(w), within: within}
}

// Write writes to the answer.
func (w *Writer) Write(b []byte) (int, error) {
	if err := w.arm(); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
}

// Send writes to the answer and sends what is buffered, within one bound.
func (w *Writer) Send(b []byte) error {
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.control.Flush()
}

// FlushError sends the buffered data.
func (w *Writer) FlushError() error {
	if err := w.arm(); err != nil {
		return err
	}
	return w.control.Flush()
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// arm sets the deadline, unless most of its time is left: setting it costs more than a small write.
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
