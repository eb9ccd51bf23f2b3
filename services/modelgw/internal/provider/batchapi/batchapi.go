// Package batchapi is shared by the batch APIs of vendors: their requests, files of lines, and the failures of both,
// which are those of the exchange of the plain requests.
package batchapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Client makes the requests of one account. It is safe for concurrent use.
type Client struct {
	Exchange *exchange.Exchange
	// Authorize sets the account's credentials and headers on a request.
	Authorize func(http.Header)
}

// maxDocument bounds an answer that is one document: a list of batches, the state of one, or answers that are inline.
const maxDocument = provider.DefaultMaxAnswerBytes

// Get reads a document into a struct.
func (c *Client) Get(ctx context.Context, url string, into any) error {
	return c.document(ctx, http.MethodGet, url, http.Header{}, Content{}, into)
}

// Post posts JSON, and reads the answer into a struct. Header is added to that of the account, and may be nil.
func (c *Client) Post(ctx context.Context, url string, header http.Header, into any, content Content) error {
	if header = header.Clone(); header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	return c.document(ctx, http.MethodPost, url, header, content, into)
}

// Upload posts a file as a form with fields, and reads the answer into a struct.
func (c *Client) Upload(ctx context.Context, url string, fields map[string]string, name string, into any, content Content) error {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	var err error
	for field, value := range fields {
		err = errors.Join(err, w.WriteField(field, value))
	}
	_, begun := w.CreateFormFile("file", name)
	head := form.String()
	if err = errors.Join(err, begun, w.Close()); err != nil {
		return err
	}
	tail := form.String()[len(head):]
	return c.document(ctx, http.MethodPost, url, http.Header{"Content-Type": {w.FormDataContentType()}}, content.Within(head, tail), into)
}

func (c *Client) document(ctx context.Context, method, url string, header http.Header, content Content, into any) error {
	answer, err := c.Do(ctx, method, url, header, content)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	read, err := transport.ReadWhole(answer, maxDocument)
	defer read.Release()
	if err != nil {
		return transport.Broken(ctx, c.Exchange.Provider, err)
	}
	if err := json.Unmarshal(read.Bytes, into); err != nil {
		return c.Unreadable(noDocument(err))
	}
	return nil
}

// noDocument is the fault of an answer that is not JSON of the expected form.
func noDocument(err error) error {
	return &dialect.MalformedError{Answer: "document of the batch API", Cause: err}
}

// Unreadable is the failure of an answer that is not what it should be. It may be another one next time.
func (c *Client) Unreadable(err error) error {
	failure := c.Exchange.Malformed(err)
	failure.Class = provider.Transient
	return failure
}

// Do makes a request, and fails unless the answer is a success, whose body the caller closes. It adds the account's
// header to the given one.
func (c *Client) Do(ctx context.Context, method, url string, header http.Header, content Content) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Exchange.Provider, err)
	}
	if size := content.Size(); size > 0 {
		request.ContentLength = size
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(content.reader(ctx)), nil }
		request.Body, _ = request.GetBody()
	}
	request.Header = header
	c.Authorize(header)
	answer, err := c.Exchange.HTTP.Do(request)
	if err != nil {
		return nil, transport.Broken(ctx, c.Exchange.Provider, err)
	}
	switch {
	case answer.StatusCode/100 == 2:
		return answer, nil
	case answer.StatusCode/100 == 3:
		_ = answer.Body.Close()
		return nil, provider.Redirected(c.Exchange.Provider)
	}
	defer answer.Body.Close()
	read, _ := transport.Read(answer, transport.MaxErrorBytes) // If it breaks off, the received part counts.
	defer read.Release()
	return nil, c.Exchange.Refused(answer.StatusCode, answer.Header, read.Bytes)
}

// ReadResults reads a file of JSON lines and calls each for every result, without the secrets of the account if it is a
// failure. parse reports whether a line is a result; other lines, and those that are too long, are skipped: their
// requests have no result. A file that has lines and no result is not the file of results: to read it is a failure that
// may pass.
func (c *Client) ReadResults(ctx context.Context, url string, parse func(line []byte) (provider.BatchResult, bool), each func(provider.BatchResult) error) error {
	answer, err := c.Do(ctx, http.MethodGet, url, http.Header{}, Content{})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	read, found := 0, 0
	err = lines(answer.Body, provider.DefaultMaxAnswerBytes, func(line []byte) error {
		read++
		result, ok := parse(line)
		if !ok {
			return nil
		}
		found++
		return each(c.Redact(result))
	}, func(err error) error {
		return transport.Broken(ctx, c.Exchange.Provider, err)
	})
	if err == nil && read > 0 && found == 0 {
		return c.Unreadable(errors.New("the file of results has no result"))
	}
	return err
}

// lines calls each for the lines of a stream, without those longer than a bound. A failure of the stream goes through
// broken.
func lines(stream io.Reader, most int, each func([]byte) error, broken func(error) error) error {
	in := bufio.NewReaderSize(stream, 64<<10)
	for {
		var line []byte
		long := false
		piece, err := in.ReadSlice('\n')
		for ; errors.Is(err, bufio.ErrBufferFull); piece, err = in.ReadSlice('\n') {
			if long = long || len(line)+len(piece) > most; !long {
				line = append(line, piece...)
			}
		}
		if long = long || len(line)+len(piece) > most; !long {
			line = append(line, piece...)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && !long {
			if err := each(line); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return broken(err)
		}
	}
}

// Redact removes the secrets of the account from a result that is a failure.
func (c *Client) Redact(r provider.BatchResult) provider.BatchResult {
	if r.Status != http.StatusOK {
		r.Body = []byte(transport.Redact(c.Exchange.HTTP, string(r.Body)))
	}
	return r
}

// oneLine returns a JSON document without line breaks, which separate lines and mean nothing within a document.
func oneLine(document []byte) []byte {
	if !bytes.ContainsAny(document, "\r\n") {
		return document
	}
	line := bytes.Clone(document)
	for i, c := range line {
		if c == '\r' || c == '\n' {
			line[i] = ' '
		}
	}
	return line
}

// Gone reports whether an attempt to cancel was refused because there is nothing to cancel any more.
func Gone(err error) bool {
	failure, ok := provider.As(err)
	return ok && (failure.Status == http.StatusConflict || failure.Status == http.StatusBadRequest)
}

// Join joins a few reasons for people; either may be empty.
func Join(words, why string) string {
	if words == "" || why == "" {
		return words + why
	}
	return words + ": " + why
}
