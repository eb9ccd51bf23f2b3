package batchapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Content is the body of a request. That of a batch is made while it is sent, one line after the other, so that memory
// holds one line at a time. Its length is known before. The zero value is no body.
type Content struct {
	head, between, tail string
	lines               []provider.BatchLine
	around              func(id []byte) (before, after string)
}

// Document is a content that is in memory.
func Document(document []byte) Content { return Content{head: string(document)} }

// Lines is the content of a batch: each line within what around returns for its id, which is JSON, and between two
// lines what separates them.
func Lines(lines []provider.BatchLine, between string, around func(id []byte) (before, after string)) Content {
	return Content{lines: lines, between: between, around: around}
}

// Within returns the content between two texts.
func (c Content) Within(head, tail string) Content {
	c.head, c.tail = head+c.head, c.tail+tail
	return c
}

// Size is the length in bytes.
func (c Content) Size() int64 {
	size := len(c.head) + len(c.tail) + max(0, len(c.lines)-1)*len(c.between)
	all := int64(size)
	for n := range c.lines {
		before, after := c.around(jsonwrite.AppendText(nil, c.lines[n].ID))
		all += int64(len(before)) + c.lines[n].Size + int64(len(after))
	}
	return all
}

// reader reads the content from its beginning. It fails with the error of a line that cannot be read.
func (c Content) reader(ctx context.Context) io.Reader {
	return &reader{ctx: ctx, content: c, piece: strings.NewReader(c.head)}
}

// reader is a place in a content.
type reader struct {
	ctx     context.Context //nolint:containedctx // A request's body has the request's.
	content Content
	piece   io.Reader
	next    int // the line after the piece; beyond the lines it is the tail, and then the end
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for {
		if n, err := r.piece.Read(p); n > 0 || err != io.EOF {
			return n, err
		}
		if r.next > len(r.content.lines) {
			return 0, io.EOF
		}
		if err := r.advance(); err != nil {
			return 0, err
		}
	}
}

// advance begins the next piece.
func (r *reader) advance() error {
	c, n := r.content, r.next
	r.next++
	if n == len(c.lines) {
		r.piece = strings.NewReader(c.tail)
		return nil
	}
	line := c.lines[n]
	body, err := line.Body(r.ctx)
	if err != nil {
		return err
	}
	if int64(len(body)) != line.Size {
		return fmt.Errorf("the request %s has %d bytes in place of %d", line.ID, len(body), line.Size)
	}
	before, after := c.around(jsonwrite.AppendText(nil, line.ID))
	if n > 0 {
		before = c.between + before
	}
	r.piece = io.MultiReader(strings.NewReader(before), bytes.NewReader(oneLine(body)), strings.NewReader(after))
	return nil
}
