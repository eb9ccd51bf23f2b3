package endpoint

import (
	"bytes"

	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

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
		if span.Found() {
			return untilUser(span.Of(body))
		}
	}
	return body
}

// untilUser is a list of messages up to the first one of the user; all of it if there is none, or if it is no list of
// objects.
func untilUser(list []byte) []byte {
	for at := range jsonscan.Elements(list) {
		switch message := at.Of(list); {
		case message[0] != '{':
			return list
		case bytes.Contains(message, userRole):
			return list[:at.End]
		}
	}
	return list
}
