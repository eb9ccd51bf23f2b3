package batchapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Walk reads a document of any length whose single values are bounded. It calls each for every value outside the paths
// of within, in the order of the document; a value is valid until each returns. Values at a path of within are read by
// their members or elements.
//
// The path of the document is empty, that of a member `.name` below its object's, that of an element `[]` below its
// array's. An error of each is returned as it is.
func (c *Client) Walk(ctx context.Context, url string, within map[string]bool, each func(path string, value json.RawMessage) error) error {
	answer, err := c.Do(ctx, http.MethodGet, url, http.Header{}, Content{})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	w := newWalk(answer.Body, maxDocument, within, each)
	err = w.value("")
	if _, malformed := errors.AsType[*json.SyntaxError](w.failed); malformed {
		return c.Unreadable(w.failed)
	}
	if w.failed != nil {
		return transport.Broken(ctx, c.Exchange.Provider, w.failed)
	}
	return err
}

// walk is a document that is read by its values.
type walk struct {
	stream *allowance
	in     *json.Decoder
	most   int64
	within map[string]bool
	each   func(path string, value json.RawMessage) error
	failed error // of the stream or of its syntax
}

func newWalk(stream io.Reader, most int64, within map[string]bool, each func(string, json.RawMessage) error) *walk {
	bounded := &allowance{from: stream}
	return &walk{stream: bounded, in: json.NewDecoder(bounded), most: most, within: within, each: each}
}

// value reads the value at a path.
func (w *walk) value(path string) error {
	w.stream.left = w.most
	if !w.within[path] {
		var whole json.RawMessage
		if err := w.fail(w.in.Decode(&whole)); err != nil {
			return err
		}
		return w.each(path, whole)
	}
	opens, err := w.in.Token()
	if delim, ok := opens.(json.Delim); err != nil || !ok {
		return w.fail(err)
	} else if delim == '[' {
		path += "[]"
	}
	for w.in.More() {
		below := path
		if opens == json.Delim('{') {
			w.stream.left = w.most
			name, err := w.in.Token()
			if err != nil {
				return w.fail(err)
			}
			below += "." + name.(string)
		}
		if err := w.value(below); err != nil {
			return err
		}
	}
	_, err = w.in.Token()
	return w.fail(err)
}

func (w *walk) fail(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	w.failed = err
	return err
}

// allowance reads at most a number of bytes from a stream before the number is set anew.
type allowance struct {
	from io.Reader
	left int64
}

// Read implements io.Reader.
func (a *allowance) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, transport.ErrAnswerTooLarge
	}
	n, err := a.from.Read(p[:min(int64(len(p)), a.left)])
	a.left -= int64(n)
	return n, err
}
