package dialect

import (
	"bytes"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// Facts are what limits and accounts need of an answer that is passed on unread. What the answer has not said yet is
// empty.
type Facts struct {
	// ID is the vendor's id of the answer.
	ID string
	// StopReason is why a choice ended: the first, or of a long answer one that is near its beginning or its end.
	StopReason modelv1.StopReason
	// Usage is nil where nothing was said about it.
	Usage *modelv1.ModelUsage
	// Pieces counts events that carry a piece of the answer, which is about a token each.
	Pieces int64
	// Ended says that a stream has come to its end, and Failed that the vendor said an error in place of the rest, or
	// of the answer.
	Ended, Failed bool
}

// Says looks for a member's name, given with its quotes such as `"usage"`, wherever it lies in a document, but first
// near the ends.
func Says(doc []byte, member string) bool { return indexMember(doc, member) >= 0 }

// indexMember returns where a name is in a document: what an answer says of itself stands before or behind the answer,
// however long that is. It is -1 where there is none.
func indexMember(doc []byte, member string) int {
	head, tail := jsonscan.Ends(doc)
	if at := bytes.Index(head, []byte(member)); at >= 0 || tail == nil {
		return at
	}
	if at := bytes.Index(tail, []byte(member)); at >= 0 {
		return len(doc) - len(tail) + at
	}
	return bytes.Index(doc, []byte(member))
}

// Word reads the text that follows a member's name, given with its quotes such as `"finish_reason"`, wherever the
// member lies in a document. Within a text the quotes would be escaped, so that there is no need to read what lies
// before the name. ok is false where there is no such text.
func Word(doc []byte, member string) (word string, ok bool) {
	at := indexMember(doc, member)
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
