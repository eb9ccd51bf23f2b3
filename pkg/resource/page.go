package resource

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// List is a request for a page of a list.
type List interface {
	proto.Message
	GetPageSize() int32
	GetPageToken() string
}

// Page is a requested page.
type Page struct {
	// After is the position that the page follows; empty for the first page. Each list defines its positions.
	After string
	// Size is how many entries the page has at most.
	Size int

	request List
}

// PageOf reads a request's page_size and page_token. It fails with INVALID_CURSOR if the token belongs to another list.
func PageOf(request List) (Page, error) {
	after, err := position("page_token", request.GetPageToken(), request)
	return Page{After: after, Size: PageSize(request.GetPageSize()), request: request}, err
}

// PageSize applies the documented default and cap of lists: 100 and 1000.
func PageSize(asked int32) int {
	switch {
	case asked <= 0:
		return 100
	case asked > 1000:
		return 1000
	}
	return int(asked)
}

// AfterNumber is After for positions that are numbers from 0; it is 0 for the first page. It fails with INVALID_CURSOR
// if After is not a number.
func (p Page) AfterNumber() (int64, error) { return number("page_token", p.After) }

// Token is the token of the page that follows a position.
func (p Page) Token(position string) string { return token(position, p.request) }

// Cut returns the entries of found that are on the page, and the next page's token; empty if there is none. Found has
// up to one entry more than Size.
func Cut[E any](p Page, found []E, position func(E) string) (page []E, next string) {
	if len(found) <= p.Size {
		return found, ""
	}
	page = found[:p.Size]
	return page, p.Token(position(page[p.Size-1]))
}

// Cursors returns the function that returns the cursor of a watch of request that continues after a sequence number. It
// reads the request once.
func Cursors(request proto.Message) func(after int64) string {
	sum := digest(request)
	return func(after int64) string { return bound(strconv.FormatInt(after, 10), sum) }
}

// ReadCursor reads a cursor of [Cursors] for the same request. The empty cursor is 0. It fails with INVALID_CURSOR.
func ReadCursor(cursor string, request proto.Message) (after int64, err error) {
	text, err := position("cursor", cursor, request)
	if err != nil {
		return 0, err
	}
	return number("cursor", text)
}

// token binds a position to the request that it belongs to. The request's own page_size and page_token do not count.
func token(position string, request proto.Message) string { return bound(position, digest(request)) }

func bound(position string, sum uint32) string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint32(nil, sum), position...))
}

// position reads a token made for the same request. The empty token is the empty position.
func position(field, token string, request proto.Message) (string, error) {
	if token == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 4 || binary.BigEndian.Uint32(b) != digest(request) {
		return "", rpcerr.InvalidCursor(field, "%s belongs to another request; begin again without it", field)
	}
	return string(b[4:]), nil
}

func number(field, position string) (int64, error) {
	if position == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(position, 10, 64)
	if err != nil || n < 0 {
		return 0, Unreadable(field)
	}
	return n, nil
}

// Unreadable is the error for a page token or a cursor, in that field, whose position does not belong to its list.
func Unreadable(field string) error {
	return rpcerr.InvalidCursor(field, "%s cannot be read; begin again without it", field)
}

// digest hashes the request that a token is bound to: without its page_size and page_token.
func digest(request proto.Message) uint32 {
	m := proto.Clone(request).ProtoReflect()
	for _, field := range []string{"page_size", "page_token"} {
		if f := m.Descriptor().Fields().ByTextName(field); f != nil {
			m.Clear(f)
		}
	}
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m.Interface())
	sum := sha256.Sum256(append([]byte(m.Descriptor().FullName()), b...))
	return binary.BigEndian.Uint32(sum[:])
}
