package dataset

import (
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/pytext"
)

// Selection says which samples of a dataset to run. The zero Selection takes all.
type Selection struct {
	// Range takes samples by their position; nil takes all.
	Range *Range
	// IDs takes samples whose id matches one of these. Texts are shell patterns (`*`, `?`, `[ab]`, `[!ab]`); integers and texts of digits are
	// equal by value. Not to be used together with Range.
	IDs []ID
}

// Range is the positions from Start, from 0, up to End, which is not in it. Positions beyond the dataset are left out.
type Range struct {
	Start, End int
}

// AssignIDs gives every sample without an id its position, from 1. It fails when two samples have one id, also when one is the integer and one the
// text of it, since logs name samples by the text.
func (d *Dataset) AssignIDs() error {
	first := map[string]int{}
	for i := range d.Samples {
		s := &d.Samples[i]
		if !s.ID.IsSet() {
			s.ID = IntegerID(i + 1)
		}
		if before, taken := first[s.ID.text]; taken {
			return &Error{File: d.Name, Field: "id", Problem: fmt.Sprintf("samples %d and %d both have the id %q: give each sample an id of its own, or number them with auto_id",
				before+1, i+1, s.ID)}
		}
		first[s.ID.text] = i
	}
	return nil
}

// Select returns a dataset of the selected samples in the order of d, after AssignIDs. Unmatched are the ids of the selection that match no sample,
// which is worth a warning. It fails when no sample matches, and when ids and a range are both given.
func (d *Dataset) Select(sel Selection) (selected *Dataset, unmatched []ID, err error) {
	if sel.Range != nil && len(sel.IDs) > 0 {
		return nil, nil, &Error{File: d.Name, Problem: "samples are selected both by id and by position: use one of the two"}
	}
	chosen := *d
	if sel.Range != nil {
		if sel.Range.Start < 0 || sel.Range.End < 0 {
			return nil, nil, &Error{File: d.Name, Problem: fmt.Sprintf("samples %d to %d are selected: positions begin at 0", sel.Range.Start, sel.Range.End)}
		}
		end := min(sel.Range.End, len(d.Samples))
		chosen.Samples = d.Samples[min(sel.Range.Start, end):end]
		return &chosen, nil, nil
	}
	if len(sel.IDs) == 0 {
		return &chosen, nil, nil
	}
	chosen.Samples = nil
	matched := make([]bool, len(sel.IDs))
	for _, s := range d.Samples {
		take := false
		for i, pattern := range sel.IDs {
			if pytext.MatchGlob(pattern.matchKey(), s.ID.matchKey()) {
				matched[i], take = true, true
			}
		}
		if take {
			chosen.Samples = append(chosen.Samples, s)
		}
	}
	for i, pattern := range sel.IDs {
		if !matched[i] {
			unmatched = append(unmatched, pattern)
		}
	}
	if len(chosen.Samples) == 0 {
		return nil, nil, &Error{File: d.Name, Field: "id", Problem: fmt.Sprintf("no sample has the id %s; there are %s", list(sel.IDs), d.someIDs())}
	}
	return &chosen, unmatched, nil
}

func list(ids []ID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.text
	}
	return strings.Join(texts, ", ")
}

// someIDs names a few ids, for messages.
func (d *Dataset) someIDs() string {
	const few = 8
	var ids []ID
	for _, s := range d.Samples[:min(few, len(d.Samples))] {
		ids = append(ids, s.ID)
	}
	text := list(ids)
	if len(d.Samples) > few {
		text += fmt.Sprintf(" and %d more", len(d.Samples)-few)
	}
	return text
}
