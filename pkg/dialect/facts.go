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
	if at := indexName(head, member); at >= 0 || tail == nil {
		return at
	}
	if at := indexName(tail, member); at >= 0 {
		return len(doc) - len(tail) + at
	}
	return indexName(doc, member)
}

// indexName is bytes.Index for a name in quotes. It looks for the name without the first of them, which would be found
// in too many places.
func indexName(doc []byte, quoted string) int {
	for from := 1; from <= len(doc); {
		at := bytes.Index(doc[from:], []byte(quoted[1:]))
		if at < 0 {
			return -1
		}
		if from += at; doc[from-1] == '"' {
			return from - 1
		}
		from++
	}
	return -1
}

// WordPath is the place of a text in the documents of a format. It is constant.
type WordPath struct {
	path   []string
	quoted string // its name
}

// NewWordPath returns the place at a path of members' names, in which a list means each of its elements.
func NewWordPath(path ...string) WordPath {
	return WordPath{path: path, quoted: `"` + path[len(path)-1] + `"`}
}

// Of returns the text of a document, the first of several. Other members of its name, such as in the arguments of a
// call, do not count. ok is false if there is no such text. A document without the name, or with another value behind
// it, is not parsed: most pieces of a stream are such.
func (p WordPath) Of(doc []byte) (word string, ok bool) {
	for rest := doc; ; {
		at := indexName(rest, p.quoted)
		if at < 0 {
			return "", false
		}
		rest = rest[at+len(p.quoted):]
		if value, named := bytes.CutPrefix(bytes.TrimLeft(rest, blanks), colon); named && bytes.HasPrefix(bytes.TrimLeft(value, blanks), quote) {
			break
		}
	}
	return wordAt(doc, p.path)
}

const blanks = " \t\r\n"

var colon, quote = []byte(":"), []byte(`"`)

func wordAt(doc []byte, path []string) (word string, ok bool) {
	if len(path) == 0 {
		return jsonscan.Text(doc)
	}
	var found [1]jsonscan.Span
	if jsonscan.Object(doc, path[:1], found[:]) != nil || !found[0].Found() {
		return "", false
	}
	value := found[0].Of(doc)
	if value[0] != '[' {
		return wordAt(value, path[1:])
	}
	for element := range jsonscan.Elements(value) {
		if word, ok = wordAt(element.Of(value), path[1:]); ok {
			return word, true
		}
	}
	return "", false
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
