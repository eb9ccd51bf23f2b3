package provider

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Streaming is a model argument that selects whether answers are streamed: true, false, or "auto", the zero value,
// which leaves it to the provider.
type Streaming struct {
	// Always is the choice; nil is "auto".
	Always *bool
}

// UnmarshalJSON reads a truth value, or the text `auto`.
func (s *Streaming) UnmarshalJSON(raw []byte) error {
	if string(raw) == `"auto"` {
		return nil
	}
	if json.Unmarshal(raw, &s.Always) != nil {
		return fmt.Errorf(`streaming must be true, false or "auto", not %s`, raw)
	}
	return nil
}

// Texts is a model argument with texts: a list, or one text with commas.
type Texts []string

// UnmarshalJSON reads either form.
func (t *Texts) UnmarshalJSON(raw []byte) error {
	var joined string
	if json.Unmarshal(raw, &joined) == nil {
		*t = strings.Split(joined, ",")
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(t))
}
