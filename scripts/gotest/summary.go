package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/scripts/internal/testevent"
)

// summary folds the events of one or more runs. It counts tests that have no subtests; a package that
// does not build, or fails outside any test, counts as one failure.
type summary struct {
	out            io.Writer
	packages       map[string]*pkg
	builds         map[string]*strings.Builder // output of the compiler, by import path
	skips          []string
	passed, failed int
	ended          bytes.Buffer // the last event of each test, a line each; without those of labelled runs
}

// pkg is a package whose tests are running.
type pkg struct {
	tests  map[string]*test
	output strings.Builder // what no test printed
}

type test struct {
	result string // pass, fail or skip; empty while it runs
	output strings.Builder
	// after is what came under the test's name when it had ended well: words of the program, which may be its last.
	after strings.Builder
	ended bool
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, packages: map[string]*pkg{}, builds: map[string]*strings.Builder{}}
}

func (s *summary) add(e testevent.Event, label string) {
	switch e.Action {
	case "build-output":
		b, ok := s.builds[e.ImportPath]
		if !ok {
			b = &strings.Builder{}
			s.builds[e.ImportPath] = b
		}
		b.WriteString(e.Output)
		return
	case "build-fail":
		fmt.Fprint(s.out, s.builds[e.ImportPath])
		delete(s.builds, e.ImportPath)
		return
	}

	p, ok := s.packages[e.Package]
	if !ok {
		p = &pkg{tests: map[string]*test{}}
		s.packages[e.Package] = p
	}
	if e.Test != "" {
		p.add(e)
		if label == "" {
			s.record(e)
		}
		return
	}
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		delete(s.packages, e.Package)
		s.finish(p, e, label)
	}
}

// record keeps the last event of a test.
func (s *summary) record(e testevent.Event) {
	switch e.Action {
	case "pass", "fail", "skip":
		line, _ := json.Marshal(e) // It was read as JSON.
		s.ended.Write(append(line, '\n'))
	}
}

func (p *pkg) add(e testevent.Event) {
	t, ok := p.tests[e.Test]
	if !ok {
		t = &test{}
		p.tests[e.Test] = t
	}
	switch e.Action {
	case "output":
		switch {
		case t.ended:
			t.after.WriteString(e.Output)
		case endsWell(e.Output):
			t.ended = true
			fallthrough
		default:
			t.output.WriteString(e.Output)
		}
	case "pass", "fail", "skip":
		t.result = e.Action
	}
}

// endsWell reports whether a line says that a test has ended without a failure.
func endsWell(line string) bool {
	line = strings.TrimLeft(line, " ")
	return strings.HasPrefix(line, "--- PASS: ") || strings.HasPrefix(line, "--- SKIP: ")
}

// finish counts the tests of p, which has ended, and prints its line.
func (s *summary) finish(p *pkg, e testevent.Event, label string) {
	s.tell(p, e.Package, label, e.Action == "fail", fmt.Sprintf("%.1fs", e.Elapsed))
}

// tell counts the tests of a package and prints its line. When it failed, so is what its program printed.
func (s *summary) tell(p *pkg, name, label string, broken bool, took string) {
	var passed, failed, skipped int
	parents := p.parents()
	for _, test := range slices.Sorted(maps.Keys(p.tests)) {
		t := p.tests[test]
		if t.result != "pass" && t.result != "skip" {
			fmt.Fprint(s.out, &t.output)
		}
		if broken {
			fmt.Fprint(s.out, &t.after)
		}
		if parents[test] {
			continue
		}
		switch t.result {
		case "pass":
			passed++
		case "skip":
			skipped++
			s.skips = append(s.skips, fmt.Sprintf("%s.%s%s: %s", name, test, label, reason(t.output.String())))
		default:
			failed++
		}
	}
	if broken {
		fmt.Fprint(s.out, &p.output)
		failed = max(failed, 1)
	}
	s.passed += passed
	s.failed += failed
	if !broken && len(p.tests) == 0 {
		return // it has no tests, or none that were asked for
	}
	verdict := "ok  "
	if failed > 0 {
		verdict = "FAIL"
	}
	fmt.Fprintf(s.out, "%s %s%s: %d passed, %d failed, %d skipped (%s)\n", verdict, name, label, passed, failed, skipped, took)
}

// parents is the set of tests that have subtests.
func (p *pkg) parents() map[string]bool {
	parents := map[string]bool{}
	for name := range p.tests {
		for i := strings.LastIndexByte(name, '/'); i > 0 && !parents[name[:i]]; i = strings.LastIndexByte(name[:i], '/') {
			parents[name[:i]] = true
		}
	}
	return parents
}

// reason is what a skipped test said, on one line.
func reason(output string) string {
	var said []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		// "file_test.go:12: because" → "because"
		if at, why, ok := strings.Cut(line, ": "); ok && strings.Contains(at, ".go:") {
			line = why
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// close prints what is there of packages that have not ended, the skipped tests and the closing line.
func (s *summary) close() {
	for _, name := range slices.Sorted(maps.Keys(s.packages)) {
		s.tell(s.packages[name], name, "", true, "unfinished")
	}
	for _, skip := range s.skips {
		fmt.Fprintln(s.out, "SKIP", skip)
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, len(s.skips))
}
