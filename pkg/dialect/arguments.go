package dialect

import "encoding/json"

// Arguments are the raw text of a call's arguments; some servers send the object itself.
type Arguments string

// TakeText implements jsonread.TextTaker.
func (a *Arguments) TakeText(text string) { *a = Arguments(text) }

// UnmarshalJSON takes a text as it is, and anything else as its JSON.
func (a *Arguments) UnmarshalJSON(raw []byte) error {
	var text *string
	switch err := json.Unmarshal(raw, &text); {
	case err != nil:
		*a = Arguments(raw)
	case text != nil:
		*a = Arguments(*text)
	}
	return nil
}
