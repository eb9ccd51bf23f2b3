package dialect

import (
	"bytes"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/jsonscan"
)

// Facts are what limits and accounts need of an answer that is passed on unread. What the answer has not said yet is empty.
type Facts struct {
	// ID is the vendor's id of the answer.
	ID string
	// StopReason is why the first choice ended.
	StopReason modelv1.StopReason
	// Usage is nil where nothing was said about it.
	Usage *modelv1.ModelUsage
	// Pieces counts events that carry a piece of the answer, which is about a token each.
	Pieces int64
}

// Word reads the text that follows a member's name, given with its quotes such as `"finish_reason"`, wherever the member lies in a document. Within a text the quotes
// would be escaped, so that there is no need to read what lies before the name. ok is false where there is no such text.
func Word(doc []byte, member string) (word string, ok bool) {
	at := bytes.Index(doc, []byte(member))
	if at < 0 {
		return "", false
	}
	rest := bytes.TrimLeft(doc[at+len(member):], ": \t\r\n")
	if len(rest) == 0 || rest[0] != '"' {
		return "", false
	}
	end := bytes.IndexByte(rest[1:], '"')
	if end < 0 {
		return "", false
	}
	return jsonscan.Text(rest[:end+2])
}
