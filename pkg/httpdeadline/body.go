package httpdeadline

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Bodies ends requests whose client stops sending the body: a read fails, and the connection ends, if nothing arrives
// within the limit. A slow client is not cut off, since each read has the full time. A body that the handler leaves
// unread has the same bound.
func Bodies(next http.Handler, within time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			b := &body{ReadCloser: r.Body, control: *http.NewResponseController(w), within: within}
			if b.arm() == nil {
				if r.Header.Get("Expect") != "" { // The server sees by its own request whether the body was asked for.
					r = r.WithContext(r.Context())
				}
				r.Body = b
			}
		}
		next.ServeHTTP(w, r)
	})
}

// body is the body of one request.
type body struct {
	io.ReadCloser

	control http.ResponseController
	within  time.Duration
	until   time.Time
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.arm(); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		// The server now reads on, to see whether the client leaves. That may take any time. After any other error it
		// reads on for the rest of the body, and the deadline ends that.
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// arm sets the deadline, unless most of the last one's time is left.
func (b *body) arm() error {
	now := time.Now()
	if b.until.Sub(now) > b.within*3/4 {
		return nil
	}
	b.until = now.Add(b.within)
	return b.control.SetReadDeadline(b.until)
}
