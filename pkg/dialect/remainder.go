package dialect

import "strings"

// Remainder finds what the pieces of an answer did not contain of its texts, or of its reasoning. It belongs to a
// StreamWriter that closes its answer.
type Remainder struct {
	// Said is the pieces' text of the parts that are not yet visited.
	Said string
	// All means that nothing is missing.
	All bool
}

// Of returns the missing rest of the next part's text, and whether the pieces have begun it. If the pieces differ from
// the text, nothing counts as missing from there on: an answer may be reordered once it is complete.
func (r *Remainder) Of(text string) (missing string, begun bool) {
	if r.All {
		return "", true
	}
	if rest, ok := strings.CutPrefix(text, r.Said); ok {
		begun, r.Said = r.Said != "", ""
		return rest, begun
	}
	rest, ok := strings.CutPrefix(r.Said, text)
	r.Said, r.All = rest, !ok
	return "", true
}
