package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Text writes the report as a table for a terminal.
func Text(w io.Writer, r Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIGURE\tMEASURED\tAGAINST\tRATIO\tGOAL")
	for _, b := range r.Benchmarks {
		if b.NotRun != "" {
			fmt.Fprintf(t, "%s\tnot measured: %s\t\t\t\n", b.Title, b.NotRun)
		}
		for _, f := range b.Figures {
			fmt.Fprintf(t, "%s\t%s\t%s: %s\t%s\t%s\n", f.Name, amount(f.Measured, f.Unit), f.Baseline, amount(f.BaselineMeasured, f.Unit), ratio(f.Ratio),
				strings.ReplaceAll(goals(f), "*", ""))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", r.Machine)
	return err
}
