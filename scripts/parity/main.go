// Command parity checks docs/parity.md, the table that maps each symbol of the reference API to the RPC
// that serves it and the test that shows it.
//
//	parity        check the table's form: every id once, and each row complete
//	parity -run   also run the tests that rows marked done name
//	parity -results FILE
//	              also look for those tests in the results of a run of all (see scripts/gotest)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	file := flag.String("file", "docs/parity.md", "the table")
	protos := flag.String("proto", "proto/evalfleet", "where the RPCs are declared")
	runs := flag.Bool("run", false, "run the tests that done rows name")
	results := flag.String("results", "", "file of test results in which the tests that done rows name must have passed")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := check(ctx, *file, *protos, *runs, *results)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(ctx context.Context, file, protos string, runs bool, results string) error {
	table, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	rpcs, err := declaredRPCs(os.DirFS(protos))
	if err != nil {
		return err
	}
	rows, err := parse(string(table))
	if err := errors.Join(err, verify(rows, rpcs)); err != nil {
		return fmt.Errorf("%s:\n%w", file, err)
	}
	count := map[string]int{}
	for _, r := range rows {
		count[r.status]++
	}
	fmt.Printf("parity: %d rows: %d done, %d planned, %d deviations\n", len(rows), count[done], count[planned], count[deviation])
	switch {
	case results != "":
		return judgeResults(results, rows)
	case runs:
		return runTests(ctx, rows)
	}
	return nil
}
