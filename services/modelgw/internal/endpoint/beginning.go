package endpoint

import (
	"bytes"

	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// serves reports whether an instance of the model takes the client's format too.
func (r *relay) serves(m *provider.Model) bool { return r.upstreamOf(m) != nil }

// conversations are the members of requests that hold the conversation, in all formats. Instructions beside it come
// before: they are the same in many conversations.
var conversations = []string{"messages", "contents", "input"}

// userRole is how every format marks a message of the user.
var userRole = []byte(`"user"`)

// beginning is what is the same in all requests of a conversation, and differs from that of others: its messages up to
// the first one of the user. It is a hint, so that a conversation in an unusual form costs no more than a miss of the
// vendor's cache. A body without one is its own beginning.
func beginning(body []byte) []byte {
	found := make([]jsonscan.Span, len(conversations))
	if jsonscan.Object(body, conversations, found) != nil {
		return body
	}
	for _, span := range found {
		if !span.Found() {
			continue
		}
		return untilUser(span.Of(body))
	}
	return body
}

// untilUser is a list of messages up to the first one of the user; all of it if there is none, or if it is no list.
func untilUser(list []byte) []byte {
	for at := 1; at < len(list); {
		switch list[at] {
		case ' ', '\t', '\r', '\n', ',':
			at++
			continue
		case '{':
		default:
			return list
		}
		end := at + objectEnd(list[at:])
		if bytes.Contains(list[at:end], userRole) {
			return list[:end]
		}
		at = end
	}
	return list
}

// objectEnd is the length of the object at the beginning of a text; that of the text if the object does not end.
func objectEnd(text []byte) int {
	depth, within := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case within && c == '\\':
			i++
		case c == '"':
			within = !within
		case within:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}
