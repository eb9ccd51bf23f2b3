package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/scripts/internal/testevent"
)

// runTests runs what the done rows name, package by package, and fails when one of them does not exist,
// is skipped or fails.
func runTests(ctx context.Context, rows []row) error {
	byDir := testsOf(rows)
	var faults []error
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		faults = append(faults, runPackage(ctx, dir, byDir[dir]))
	}
	return errors.Join(faults...)
}

// testsOf are the tests that done rows name, by folder.
func testsOf(rows []row) map[string][]testRef {
	byDir := map[string][]testRef{}
	for _, r := range rows {
		if r.status == done {
			for _, t := range r.tests {
				byDir[t.dir] = append(byDir[t.dir], t)
			}
		}
	}
	return byDir
}

// module is the path of this module, with which the import paths of its packages begin.
const module = "github.com/evalfleet/evalfleet/"

// judgeResults fails when a test that a done row names is not among the results in a file, was skipped or failed.
func judgeResults(file string, rows []row) error {
	text, err := os.Open(file)
	if err != nil {
		return err
	}
	defer text.Close()
	byDir := map[string]map[string]string{}
	for e, err := range testevent.Read(text) {
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		dir := strings.TrimPrefix(e.Package, module)
		if byDir[dir] == nil {
			byDir[dir] = map[string]string{}
		}
		byDir[dir][e.Test] = e.Action
	}
	var faults []error
	named := testsOf(rows)
	for _, dir := range slices.Sorted(maps.Keys(named)) {
		faults = append(faults, judge(named[dir], byDir[dir]))
	}
	return errors.Join(faults...)
}

func runPackage(ctx context.Context, dir string, tests []testRef) error {
	var tops []string
	for _, t := range tests {
		tops = append(tops, t.top())
	}
	slices.Sort(tops)
	tops = slices.Compact(tops)

	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-run", "^("+strings.Join(tops, "|")+")$", "./"+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	results := map[string]string{}
	var output strings.Builder
	for e, err := range testevent.Read(out) {
		if err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return fmt.Errorf("%s: %w", dir, err)
		}
		output.WriteString(e.Output)
		switch e.Action {
		case "pass", "fail", "skip":
			results[e.Test] = e.Action
		}
	}
	runErr := cmd.Wait()
	if runErr != nil {
		fmt.Fprint(os.Stderr, output.String())
	}
	faults := judge(tests, results)
	if runErr != nil && faults == nil {
		return fmt.Errorf("%s: go test: %w", dir, runErr)
	}
	fmt.Printf("parity: %s: %d tests\n", dir, len(tops))
	return faults
}

// judge compares what rows name with what ran. Keys of results are names as `go test` writes them.
func judge(tests []testRef, results map[string]string) error {
	var faults []error
	for _, t := range tests {
		switch results[t.test] {
		case "pass":
		case "fail":
			faults = append(faults, fmt.Errorf("%v failed", t))
		case "skip":
			faults = append(faults, fmt.Errorf("%v was skipped", t))
		default:
			faults = append(faults, fmt.Errorf("%v did not run: no such test", t))
		}
	}
	return errors.Join(faults...)
}
