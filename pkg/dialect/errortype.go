package dialect

import (
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// ErrorTypes are the words of a format for errors, where they follow the HTTP status.
type ErrorTypes struct {
	ByStatus map[int]string
	// Client is the word for all other faults of a client, and Server the one for those of the server.
	Client, Server string
}

// Of returns the word for a status.
func (t ErrorTypes) Of(status int) string {
	if word, ok := t.ByStatus[status]; ok {
		return word
	}
	if status >= BadRequest && status < 500 {
		return t.Client
	}
	return t.Server
}

// Status returns the least status of a word, of the words by status; 0 for any other.
func (t ErrorTypes) Status(word string) (least int) {
	for status, known := range t.ByStatus {
		if known == word && (least == 0 || status < least) {
			least = status
		}
	}
	return least
}

// Mentions reports whether a message contains one of these words, in the same letters.
func Mentions(message string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(message, w) })
}

// ContextFull returns the output that a vendor's error about a full context represents.
func ContextFull(model, message string) *modelv1.ModelOutput {
	return chat.MessageOutput(model, chat.Assistant(message), modelv1.StopReason_STOP_REASON_MODEL_LENGTH)
}
