// Command parity checks docs/parity.md, the table that maps each symbol of the reference API to the RPC
// that serves it and the test that shows it.
//
//	parity        check the table's form: every id once, and each row complete
//	parity -run   also run the tests that rows marked done name
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
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := check(ctx, *file, *protos, *runs)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(ctx context.Context, file, protos string, runs bool) error {
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
	if !runs {
		return nil
	}
	return runTests(ctx, rows)
}
