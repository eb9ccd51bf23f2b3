package transport

import (
	"bytes"
	"io"
	"iter"
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// RedactSecrets returns a client that shares the connections of c and redacts the secrets of an account from a vendor's
// failures: refused requests, errors within a stream, pages that are not an answer, and all headers. No reader of an
// answer that relays, records or quotes it ever receives the secrets. Each character of a secret becomes a star, so
// that no length changes. Answers of models pass unchanged.
func RedactSecrets(c *http.Client, secrets ...config.Secret) *http.Client {
	hidden := newSecretSet(secrets)
	if len(hidden.runs) == 0 {
		return c
	}
	own := *c
	own.Transport = &redactingTransport{next: c.Transport, secrets: hidden}
	return &own
}

// Redact redacts the secrets of a client of RedactSecrets or Authorize in a text, for errors within what began as an
// answer; a text of another client stays as it is.
func Redact(c *http.Client, text string) string {
	if t, ok := c.Transport.(redactor); ok {
		return t.redactText(text)
	}
	return text
}

// redactor is a transport that knows an account's secrets.
type redactor interface{ redactText(text string) string }

// RedactEvents returns a function that makes a codec redact the secrets of an account from the failures within streams,
// for a format whose frames have checksums: RedactSecrets sees only their bytes.
func RedactEvents(secrets ...config.Secret) func(dialect.Codec) dialect.Codec {
	hidden := newSecretSet(secrets)
	return func(c dialect.Codec) dialect.Codec { return redactingCodec{c, hidden} }
}

type redactingCodec struct {
	dialect.Codec
	secrets *secretSet
}

// ReadEvents implements dialect.Codec.
func (r redactingCodec) ReadEvents(stream io.Reader) iter.Seq2[dialect.Event, error] {
	return func(yield func(dialect.Event, error) bool) {
		for event, err := range r.Codec.ReadEvents(stream) {
			if modeByHead(event.Data[:min(len(event.Data), maxHead)]) != answered {
				event.Data = []byte(r.secrets.text(string(event.Data)))
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

// frames is the type of streams whose frames have checksums. RedactEvents redacts them.
const frames = "application/vnd.amazon.eventstream"

// redactingTransport is the transport of such a client.
type redactingTransport struct {
	next    http.RoundTripper
	secrets *secretSet
}

// redactText implements redactor.
func (d *redactingTransport) redactText(text string) string { return d.secrets.text(text) }

// RoundTrip implements http.RoundTripper.
func (d *redactingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	for _, values := range answer.Header {
		for i, value := range values {
			values[i] = d.secrets.text(value)
		}
	}
	kind := provider.MediaType(answer.Header)
	refused := answer.StatusCode/100 != 2
	if kind == frames && !refused {
		return answer, nil
	}
	if encoding := answer.Header.Get("Content-Encoding"); refused && encoding != "" && encoding != "identity" {
		// Not requested, and an unreadable answer cannot be trusted with the key.
		_ = answer.Body.Close()
		answer.Header.Del("Content-Encoding")
		answer.Header.Del("Content-Length")
		withheld := []byte(`{"error":{"message":"the error came encoded, which was not asked for, and is left out"}}`)
		answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(withheld)), int64(len(withheld))
	}
	answer.Body = &redactingBody{ReadCloser: answer.Body, secrets: d.secrets, events: kind == "text/event-stream" && !refused, refused: refused}
	return answer, nil
}

// redactMode is the known kind of a unit of an answer: of an event of a stream, or else of the whole body.
type redactMode int

const (
	unknown redactMode = iota
	answered
	failed
)

const (
	// maxHead bounds how much of a unit is inspected to determine its kind. A unit that is not recognized as an answer
	// by then is none.
	maxHead = 4 << 10
	// smallRead is the least that is read at once.
	smallRead = 512
)

// redactingBody is the body of an answer.
type redactingBody struct {
	io.ReadCloser
	secrets *secretSet
	// events means that the units are lines of a stream; refused that no unit is an answer.
	events, refused bool

	is   redactMode
	head []byte // of the unit, while it is unknown
	// held are bytes that may be the beginning of a secret; ready are those that did not fit into the last read, and
	// err is the error after them.
	held, ready []byte
	err         error
}

// Read implements io.Reader.
func (b *redactingBody) Read(p []byte) (int, error) {
	for {
		if len(b.ready) > 0 || len(p) == 0 {
			n := copy(p, b.ready)
			b.ready = b.ready[n:]
			return n, nil
		}
		if b.err != nil {
			return 0, b.err
		}
		room, own := p, len(p) <= len(b.held)
		if own {
			room = make([]byte, len(b.held)+smallRead)
		}
		kept := copy(room, b.held)
		var n int
		n, b.err = b.ReadCloser.Read(room[kept:])
		piece := room[:kept+n]
		done := b.redact(piece, b.err != nil)
		b.held = append(b.held[:0], piece[done:]...)
		switch {
		case own:
			b.ready = piece[:done]
		case done > 0:
			return done, nil
		}
	}
}

// redact redacts a piece of the answer, and returns how much of it is final; the rest must be passed again with more,
// unless the piece is the last.
func (b *redactingBody) redact(piece []byte, last bool) int {
	for at := 0; at < len(piece); {
		unit, ended := piece[at:], last
		if end := bytes.IndexByte(unit, '\n'); b.events && end >= 0 {
			unit, ended = unit[:end+1], true
		}
		if b.modeOf(unit) != answered {
			pass := len(unit)
			if !ended {
				pass -= b.secrets.partialSuffix(unit)
			}
			b.secrets.redact(unit, pass)
			unit = unit[:pass]
			if b.is == unknown {
				b.head = append(b.head, unit[:min(pass, maxHead-len(b.head))]...)
			}
			if !ended {
				return at + pass
			}
		}
		at += len(unit)
		if ended {
			b.is, b.head = unknown, b.head[:0]
		}
	}
	return len(piece)
}

// modeOf determines the kind of the unit that starts with these bytes.
func (b *redactingBody) modeOf(next []byte) redactMode {
	if b.refused {
		return failed
	}
	if b.is != unknown {
		return b.is
	}
	head := next[:min(len(next), maxHead-len(b.head))]
	if known := len(b.head); known > 0 { // Most units come whole.
		b.head = append(b.head, head...)
		head, b.head = b.head, b.head[:known]
	}
	b.is = modeByHead(head)
	return b.is
}

// answerMembers are where the formats have a model's words.
var answerMembers = [][]byte{[]byte(`"choices"`), []byte(`"content"`), []byte(`"delta"`), []byte(`"content_block"`), []byte(`"candidates"`)}

var errorWord = []byte(`"error"`)

// firstAnswer is where the first member with a model's words begins; the length of head if there is none. A stream has
// hundreds of heads a second, so that names are compared only at quotes.
func firstAnswer(head []byte) int {
	for at := 0; ; at++ {
		quote := bytes.IndexByte(head[at:], '"')
		if quote < 0 {
			return len(head)
		}
		at += quote
		rest := head[at:]
		if len(rest) < 2 || rest[1] != 'c' && rest[1] != 'd' { // All answerMembers begin so.
			continue
		}
		for _, member := range answerMembers {
			if bytes.HasPrefix(rest, member) {
				return at
			}
		}
	}
}

// modeByHead determines the kind of a unit by its beginning. The word "error" in quotes cannot be within a text of
// JSON, and precedes the message in a failure.
func modeByHead(head []byte) redactMode {
	first, is := firstAnswer(head), answered
	if first == len(head) {
		is = unknown
	}
	for rest := head[:first]; ; {
		_, after, found := bytes.Cut(rest, errorWord)
		if !found {
			return is
		}
		value, member := bytes.CutPrefix(bytes.TrimSpace(after), []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case bytes.HasPrefix([]byte("null"), value) && first == len(head): // May be no error; the next bytes decide.
			return unknown
		case !member || !bytes.HasPrefix(value, []byte("null")):
			return failed
		}
		rest = after
	}
}
