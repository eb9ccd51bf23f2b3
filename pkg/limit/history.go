package limit

import (
	"encoding/json"
	"slices"
	"time"
)

// History are the changes of a limit, oldest first, at most MaxHistory. It never changes, so that rules may share it;
// its text is made once. Nil is an empty one. It is not safe for concurrent use.
type History struct {
	changes []Change
	text    string // empty until it is asked for
}

// oneChange is the time within which changes of a Prober for the same reason are one.
const oneChange = time.Second

// emptyHistory is the text of a history without changes.
const emptyHistory = "[]"

// DecodeHistory returns the history that has a text.
func DecodeHistory(text string) (*History, error) {
	h := &History{text: text}
	if err := json.Unmarshal([]byte(text), &h.changes); err != nil {
		return nil, err
	}
	return h, nil
}

// Text returns the history as text.
func (h *History) Text() string {
	if h == nil {
		return emptyHistory
	}
	if h.text == "" {
		h.text = text(h.changes)
	}
	return h.text
}

// list returns the changes.
func (h *History) list() []Change {
	if h == nil {
		return nil
	}
	return slices.Clone(h.changes)
}

// with returns the history with a further change.
func (h *History) with(c Change) *History {
	changes := h.list()
	if len(changes) == MaxHistory {
		changes = changes[1:]
	}
	return &History{changes: append(changes, c)}
}

// merged is like with, but a change that soon follows one for the same reason continues it.
func (h *History) merged(c Change) *History {
	changes := h.list()
	if len(changes) == 0 {
		return h.with(c)
	}
	last := &changes[len(changes)-1]
	if after := c.Time.Sub(last.Time); last.Reason != c.Reason || last.Subject != c.Subject || after < 0 || after >= oneChange {
		return h.with(c)
	}
	last.New = c.New
	return &History{changes: changes}
}
