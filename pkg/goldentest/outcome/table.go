package outcome

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/known"
)

// Table is the outcome of a folder of cases, by theme.
type Table struct {
	rows   map[string]*row
	failed []Record
}

type row struct {
	passed, later, design, failed, noDriver int
}

func (r *row) total() int { return r.passed + r.later + r.design + r.failed + r.noDriver }

func (r *row) add(record Record) {
	switch {
	case record.Result == Failed:
		r.failed++
	case record.Result == Passed:
		r.passed++
	case record.Result == Known && record.Kind == known.Design:
		r.design++
	case record.Result == Known:
		r.later++
	default:
		r.noDriver++
	}
}

// NewTable counts the cases by their records. A case without a record has no driver, unless an entry of the list says that
// it is not to be run; the list may be nil. Of several records of one case the gravest counts. Records of cases that are not in the folder are ignored, except failed ones.
func NewTable(cases []corpus.Case, records []Record, list *known.List) *Table {
	gravest := gravest(records)
	table := &Table{rows: map[string]*row{}}
	for _, c := range cases {
		k := caseKey{c.File, c.ID}
		record, ok := gravest[k]
		if !ok {
			record = unrecorded(c, list)
		}
		delete(gravest, k)
		record.Theme = c.Theme
		table.add(record)
	}
	for _, record := range gravest {
		if record.Result == Failed {
			table.add(record)
		}
	}
	slices.SortFunc(table.failed, func(a, b Record) int {
		return cmp.Or(strings.Compare(a.Theme, b.Theme), strings.Compare(a.ID, b.ID))
	})
	return table
}

// unrecorded is the record of a case that nothing has loaded.
func unrecorded(c corpus.Case, list *known.List) Record {
	record := Record{File: c.File, ID: c.ID, Result: NoDriver}
	if list == nil {
		return record
	}
	if entry := list.Find(c); entry != nil && !entry.Runs() {
		record.Result, record.Kind, record.Reason = Known, entry.Kind, entry.Reason
	}
	return record
}

// caseKey names a case.
type caseKey struct{ file, id string }

// gravest is the gravest record of each case.
func gravest(records []Record) map[caseKey]Record {
	of := map[caseKey]Record{}
	for _, record := range records {
		k := caseKey{record.File, record.ID}
		if before, ok := of[k]; !ok || weight(record.Result) > weight(before.Result) {
			of[k] = record
		}
	}
	return of
}

func weight(result Result) int {
	return slices.Index([]Result{NoDriver, Passed, Known, Failed}, result)
}

func (t *Table) add(record Record) {
	if t.rows[record.Theme] == nil {
		t.rows[record.Theme] = &row{}
	}
	t.rows[record.Theme].add(record)
	if record.Result == Failed {
		t.failed = append(t.failed, record)
	}
}

// Failed returns the records of the failed cases, by theme and id.
func (t *Table) Failed() []Record { return t.failed }

// Write prints the table, a line for each theme, the totals of each folder and of all, then the failed cases.
func (t *Table) Write(w io.Writer) error {
	var text strings.Builder
	t.writeRows(&text)
	if len(t.failed) > 0 {
		text.WriteString("\nfailed:\n")
	}
	for _, record := range t.failed {
		fmt.Fprintf(&text, "  %s: %s\n      %s\n", record.Theme, record.ID, firstLine(record.Detail))
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func (t *Table) writeRows(text *strings.Builder) {
	var aligned strings.Builder
	columns := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(columns, "passed\tlater\tby design\tfailed\tno driver\ttotal\t  theme")
	folders, all := map[string]*row{}, &row{}
	for _, theme := range slices.Sorted(maps.Keys(t.rows)) {
		r := t.rows[theme]
		r.write(columns, theme)
		folder, _, _ := strings.Cut(theme, "/")
		if folders[folder] == nil {
			folders[folder] = &row{}
		}
		folders[folder].merge(r)
		all.merge(r)
	}
	fmt.Fprintln(columns, "\t\t\t\t\t\t")
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		folders[folder].write(columns, folder)
	}
	all.write(columns, "all")
	_ = columns.Flush() // a strings.Builder takes everything
	for line := range strings.Lines(aligned.String()) {
		fmt.Fprintln(text, strings.TrimRight(line, " \n"))
	}
}

func (r *row) write(w io.Writer, name string) {
	for _, n := range []int{r.passed, r.later, r.design, r.failed, r.noDriver} {
		if n == 0 {
			fmt.Fprint(w, "·\t")
			continue
		}
		fmt.Fprintf(w, "%d\t", n)
	}
	fmt.Fprintf(w, "%d\t  %s\n", r.total(), name)
}

func (r *row) merge(other *row) {
	r.passed += other.passed
	r.later += other.later
	r.design += other.design
	r.failed += other.failed
	r.noDriver += other.noDriver
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
