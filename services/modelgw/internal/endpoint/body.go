package endpoint

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
)

// readBody reads a request's body, up to a bound. The caller must release it.
func readBody(r *http.Request, most int64) (*buffer.Buffer, error) {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		if !asks(r) {
			discard(r)
		}
		return nil, refuse(http.StatusUnsupportedMediaType, "the body is encoded as "+cut(coding)+"; send it as it is, without Content-Encoding")
	}
	b := buffer.New()
	err := b.Fill(r.Body, r.ContentLength, most)
	if err == nil {
		return b, nil
	}
	b.Release()
	if errors.Is(err, buffer.ErrTooLarge) {
		if !asks(r) || r.ContentLength <= most {
			discard(r)
		}
		return nil, refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body may have %d bytes; shorten it, or let the operator raise modelgw.endpoints.max_body_bytes", most))
	}
	return nil, refuse(http.StatusBadRequest, "the body ended before its announced length, or could not be read; send it again")
}

// asks reports whether the client sends the body only when it is read.
func asks(r *http.Request) bool { return strings.EqualFold(r.Header.Get("Expect"), "100-continue") }

// discard reads the body of a request that is refused, for clients that read the answer only after they have sent it.
func discard(r *http.Request) {
	_, _ = io.CopyN(io.Discard, r.Body, bound.DiscardedBytes) // The answer is the same on a failure.
}

// spliced is a body with one value replaced: the bytes before it, the new value, and the bytes after it. All senders
// share its bytes.
type spliced struct {
	*buffer.Buffer
	value jsonscan.Span
	text  []byte
}

// splice exchanges a value for a text.
func splice(b *buffer.Buffer, value jsonscan.Span, text string) spliced {
	return spliced{Buffer: b, value: value, text: jsonwrite.AppendText(nil, text)}
}

// size is the length of the body with the value exchanged.
func (s spliced) size() int64 {
	return int64(len(s.Bytes) - (s.value.End - s.value.Start) + len(s.text))
}

// reader reads the body from its beginning. It is a use of its own, which Close ends.
func (s spliced) reader() io.ReadCloser {
	return s.Reader(s.Bytes[:s.value.Start], s.text, s.Bytes[s.value.End:])
}
