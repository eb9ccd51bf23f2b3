package dialect

import (
	"bytes"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// Facts are the data that limits and accounts need of an answer that is relayed unread. Data that the answer has not
// contained yet is empty.
type Facts struct {
	// ID is the vendor's id of the answer.
	ID string
	// StopReason is why a choice ended: the first one, or for a long answer one near its beginning or its end.
	StopReason modelv1.StopReason
	// Usage is nil if it was not reported.
	Usage *modelv1.ModelUsage
	// Billing is what the answer says of its price beside its usage.
	Billing Billing
	// Pieces counts events that carry a piece of the answer, which is about a token each.
	Pieces int64
	// Ended means that a stream has reached its end, and Failed that the vendor sent an error in place of the rest, or
	// of the answer.
	Ended, Failed bool
}

// Says reports whether a document contains a member's name, given with its quotes such as `"usage"`, at any place; it
// searches the two ends first.
func Says(doc []byte, member string) bool { return indexMember(doc, member) >= 0 }

// indexMember returns the position of a name in a document: the metadata of an answer precedes or follows its content,
// however long that is. It is -1 if the name does not occur.
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

// Word reads the text that follows a member's name, given with its quotes such as `"finish_reason"`, at any place of a
// document. Within a text the quotes would be escaped, so that the document before the name need not be parsed. ok is
// false if there is no such text.
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

// StopReasons are the words of a format for reasons why an answer ended.
type StopReasons map[string]modelv1.StopReason

// Of returns the reason for a word; unknown for any other.
func (s StopReasons) Of(word string) modelv1.StopReason {
	if reason, ok := s[word]; ok {
		return reason
	}
	return modelv1.StopReason_STOP_REASON_UNKNOWN
}
