package outcome

import (
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/known"
)

// count is how many cases differ, and how many do not.
type count struct{ fails, passes int }

// Stale names the known differences that are wrong: entries with wrong numbers of differing or passing cases, and
// themes of entries in which no executed case differs. Entries whose cases are not to be run are ignored.
func Stale(list *known.List, cases []corpus.Case, records []Record) []string {
	results := map[caseKey]Result{}
	for k, record := range gravest(records) {
		results[k] = record.Result
	}
	type place struct {
		entry   *known.Entry
		pattern string
	}
	of, in := map[*known.Entry]count{}, map[place]count{}
	for _, c := range cases {
		entry := list.Find(c)
		if entry == nil || !entry.Runs() {
			continue
		}
		one := count{}
		switch results[caseKey{c.File, c.ID}] {
		case Passed:
			one.passes = 1
		case Known, Failed:
			one.fails = 1
		case NoDriver:
		}
		of[entry] = of[entry].plus(one)
		for _, pattern := range entry.Theme {
			if known.Matches(pattern, c.Theme) {
				in[place{entry, pattern}] = in[place{entry, pattern}].plus(one)
			}
		}
	}
	var stale []string
	for _, entry := range list.Entries() {
		if got, said := of[entry], (count{entry.Fails, entry.Passes}); entry.Runs() && got != said {
			stale = append(stale, fmt.Sprintf("%s: %d cases fail and %d pass, where it says %d and %d (%s)",
				entry.Source, got.fails, got.passes, said.fails, said.passes, entry.Reason))
		}
		for _, pattern := range entry.Theme {
			if n := in[place{entry, pattern}]; n.fails == 0 && n.passes > 0 {
				stale = append(stale, fmt.Sprintf("%s: theme %s: all %d cases pass (%s)", entry.Source, pattern, n.passes, entry.Reason))
			}
		}
	}
	return stale
}

func (c count) plus(d count) count { return count{c.fails + d.fails, c.passes + d.passes} }
