package report

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Replace writes between these lines of a document.
const (
	beginMark = "<!-- results: written by make bench -->"
	endMark   = "<!-- end of results -->"
)

var errNoMarks = errors.New("the document has no place for results: it needs the lines " + beginMark + " and " + endMark)

// Replace replaces the results in a document by the report.
func Replace(document []byte, r Report) ([]byte, error) {
	before, rest, ok := bytes.Cut(document, []byte(beginMark))
	_, after, ended := bytes.Cut(rest, []byte(endMark))
	if !ok || !ended {
		return nil, errNoMarks
	}
	var out bytes.Buffer
	out.Write(before)
	out.WriteString(beginMark + "\n\n" + Markdown(r) + "\n" + endMark)
	out.Write(after)
	return out.Bytes(), nil
}

// Markdown writes the report: a table of all figures, then each benchmark with what its figures mean.
func Markdown(r Report) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Measured on %s in %s, on %s.\n\n", r.Date.Format("2006-01-02"), r.Took, r.Machine)
	out.WriteString("| figure | measured | against | ratio (middle half) | goal |\n| --- | --- | --- | --- | --- |\n")
	for _, b := range r.Benchmarks {
		for _, f := range b.Figures {
			fmt.Fprintf(&out, "| %s | %s | %s: %s | %s | %s |\n", f.Name, amount(f.Measured, f.Unit), f.Baseline, amount(f.BaselineMeasured, f.Unit), ratio(f.Ratio), goals(f))
		}
	}
	for _, b := range r.Benchmarks {
		fmt.Fprintf(&out, "\n### %s\n\n%s\n\n", b.Title, b.How)
		if b.NotRun != "" {
			fmt.Fprintf(&out, "Not measured: %s.\n", b.NotRun)
			continue
		}
		for _, f := range b.Figures {
			fmt.Fprintf(&out, "- **%s**: %s\n", f.Name, f.Means)
		}
	}
	return out.String()
}

func goals(f Figure) string {
	if len(f.Goals) == 0 {
		return "none"
	}
	all := make([]string, 0, len(f.Goals))
	for _, g := range f.Goals {
		all = append(all, g.String())
	}
	return strings.Join(all, "; ")
}
