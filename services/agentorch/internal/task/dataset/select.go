package dataset

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

// Selection defines which samples of a dataset to run. The zero Selection takes all.
type Selection struct {
	// Range takes samples by their position; nil takes all.
	Range *Range
	// IDs selects samples whose id matches one of these. Texts are shell patterns (`*`, `?`, `[ab]`, `[!ab]`); integers
	// and texts of digits are equal by value. It must not be used together with Range.
	IDs []ID
}

// Range is the positions from Start, from 0, up to End, which is not in it. Positions beyond the dataset are left out.
type Range struct {
	Start, End int
}

// IDs numbers the samples of a dataset while they are read, and finds duplicate ids. It stores a hash of each id, and
// not the id.
type IDs struct {
	seed  maphash.Seed
	first map[uint64]int32 // the position of the sample with an id, from 0, by the hash of its text
	count int
}

// Next returns the id of the next sample: its own or, if it has none, its position from 1. At returns the id of an
// earlier sample by its position from 0. Next fails if an earlier sample has the id, even if one id is the integer and
// the other its text, since logs name samples by the text.
func (n *IDs) Next(id ID, at func(i int) ID) (ID, error) {
	if n.first == nil {
		n.seed, n.first = maphash.MakeSeed(), map[uint64]int32{}
	}
	if !id.IsSet() {
		id = IntegerID(n.count + 1)
	}
	hash := maphash.String(n.seed, id.text)
	for before, taken := n.first[hash]; taken; before, taken = n.first[hash] {
		if at(int(before)).text == id.text {
			return ID{}, &Error{Field: "id", Problem: fmt.Sprintf("samples %d and %d both have the id %q: give each sample an id of its own, or number them with auto_id",
				before+1, n.count+1, id)}
		}
		hash++ // Another id has this one's hash.
	}
	n.first[hash] = int32(n.count)
	n.count++
	return id, nil
}

// Take returns the selected samples among those at the positions of order, in that order. At returns the id of the
// sample at a position. Unmatched are the selected ids that match no sample, which deserve a warning. It fails if no
// sample matches, and if ids and a range are both given.
func (sel Selection) Take(ctx context.Context, order []int, at func(i int) ID) (taken []int, unmatched []ID, err error) {
	if sel.Range != nil && len(sel.IDs) > 0 {
		return nil, nil, &Error{Problem: "samples are selected both by id and by position: use one of the two"}
	}
	if sel.Range != nil {
		if sel.Range.Start < 0 || sel.Range.End < 0 {
			return nil, nil, &Error{Problem: fmt.Sprintf("samples %d to %d are selected: positions begin at 0", sel.Range.Start, sel.Range.End)}
		}
		end := min(sel.Range.End, len(order))
		return order[min(sel.Range.Start, end):end], nil, nil
	}
	if len(sel.IDs) == 0 {
		return order, nil, nil
	}
	// Plain ids are looked up, so that the time is in proportion to the samples and patterns alone.
	plain, patterns := map[string]bool{}, map[string]bool{} // whether a sample matched
	for _, id := range sel.IDs {
		key := id.matchKey()
		if !strings.ContainsAny(key, "*?[") {
			plain[key] = false
			continue
		}
		if len(key) > bound.SamplePatternBytes {
			return nil, nil, &Error{Field: "id", Problem: fmt.Sprintf("the pattern %.40q… has %d bytes; at most %d", key, len(key), bound.SamplePatternBytes)}
		}
		if patterns[key] = false; len(patterns) > bound.SamplePatterns {
			return nil, nil, &Error{Field: "id", Problem: fmt.Sprintf("there are more than %d patterns with *, ? or [; name the samples, or mark them in the data set", bound.SamplePatterns)}
		}
	}
	for _, position := range order {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		key := at(position).matchKey()
		_, take := plain[key]
		if take {
			plain[key] = true
		}
		for pattern := range patterns {
			if pytext.MatchGlob(pattern, key) {
				patterns[pattern], take = true, true
			}
		}
		if take {
			taken = append(taken, position)
		}
	}
	for _, id := range sel.IDs {
		if key := id.matchKey(); !plain[key] && !patterns[key] {
			unmatched = append(unmatched, id)
		}
	}
	if len(taken) == 0 {
		return nil, nil, &Error{Field: "id", Problem: fmt.Sprintf("no sample has the id %s; there are %s", list(sel.IDs), someIDs(order, at))}
	}
	return taken, unmatched, nil
}

func list(ids []ID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.text
	}
	return strings.Join(texts, ", ")
}

// someIDs names a few ids, for messages.
func someIDs(order []int, at func(i int) ID) string {
	const few = 8
	var ids []ID
	for _, position := range order[:min(few, len(order))] {
		ids = append(ids, at(position))
	}
	text := list(ids)
	if len(order) > few {
		text += fmt.Sprintf(" and %d more", len(order)-few)
	}
	return text
}
