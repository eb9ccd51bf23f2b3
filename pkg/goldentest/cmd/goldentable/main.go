// Command goldentable prints the outcome of the recorded cases, by theme: passed, known difference (later or by
// design), failed, or without a driver. It reads the folder of reports that the tests wrote and the folder of cases.
//
//	goldentable -cases testdata/golden -known testdata/known-differences REPORTS
//
// With -known it also names the known differences that are wrong: that explain nothing, or have wrong numbers of
// differing or passing cases. It exits with 1 if a case failed or such an entry was found, and with 2 if it cannot make
// the table.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/known"
	"github.com/evalfleet/evalfleet/pkg/goldentest/outcome"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("goldentable", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: goldentable [-cases FOLDER] [-known FOLDER] REPORTS")
		flags.PrintDefaults()
	}
	root := flags.String("cases", "testdata/golden", "folder of recorded cases")
	differences := flags.String("known", "", "folder of known differences that must each explain something; not for a folder of few cases")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return 2
	}
	cases, faults := corpus.All(*root)
	if len(cases) == 0 {
		fmt.Fprintf(stderr, "goldentable: no cases in %s: %v\n", *root, faults)
		return 2
	}
	records, err := outcome.Read(flags.Arg(0))
	if err != nil {
		fmt.Fprintln(stderr, "goldentable:", err)
		return 2
	}
	var list *known.List
	if *differences != "" {
		if list, err = known.Load(*differences); err != nil {
			fmt.Fprintln(stderr, "goldentable:", err)
			return 2
		}
	}
	table := outcome.NewTable(cases, records, list)
	if err := table.Write(stdout); err != nil {
		fmt.Fprintln(stderr, "goldentable:", err)
		return 2
	}
	if faults != nil {
		fmt.Fprintf(stdout, "\nnot read as cases:\n%v\n", faults)
	}
	var stale []string
	if list != nil {
		stale = outcome.Stale(list, cases, records)
	}
	if len(stale) > 0 {
		fmt.Fprintf(stdout, "\nknown differences that do not say what is so; see what changed, then correct, narrow or remove them:\n  %s\n", strings.Join(stale, "\n  "))
	}
	if len(table.Failed()) > 0 || len(stale) > 0 {
		return 1
	}
	return 0
}
