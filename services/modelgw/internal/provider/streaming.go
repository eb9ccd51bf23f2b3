package provider

import (
	"encoding/json"
	"fmt"
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
