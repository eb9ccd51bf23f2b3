package outcome

import (
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/known"
)

// Stale names the themes of known differences that explain nothing any more: every case that the entry covers there was executed and passes. Cases that nothing executes tell neither way, and
// entries whose cases are not to be run are left alone.
func Stale(list *known.List, cases []corpus.Case, records []Record) []string {
	results := map[caseKey]Result{}
	for k, record := range gravest(records) {
		results[k] = record.Result
	}
	type place struct {
		entry   *known.Entry
		pattern string
	}
	type count struct{ passed, rest int }
	counts := map[place]*count{}
	for _, c := range cases {
		entry := list.Find(c)
		if entry == nil || !entry.Runs() {
			continue
		}
		for _, pattern := range entry.Theme {
			if !known.Matches(pattern, c.Theme) {
				continue
			}
			p := place{entry, pattern}
			if counts[p] == nil {
				counts[p] = &count{}
			}
			if results[caseKey{c.File, c.ID}] == Passed {
				counts[p].passed++
			} else {
				counts[p].rest++
			}
		}
	}
	var stale []string
	for _, entry := range list.Entries() {
		for _, pattern := range entry.Theme {
			if n := counts[place{entry, pattern}]; n != nil && n.rest == 0 {
				stale = append(stale, fmt.Sprintf("%s: theme %s: all %d cases pass (%s)", entry.Source, pattern, n.passed, entry.Reason))
			}
		}
	}
	return stale
}
