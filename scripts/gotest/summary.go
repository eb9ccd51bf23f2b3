package main

import (
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
}

// pkg is a package whose tests are running.
type pkg struct {
	tests  map[string]*test
	output strings.Builder // what no test printed
}

type test struct {
	result string // pass, fail or skip; empty while it runs
	output strings.Builder
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

func (p *pkg) add(e testevent.Event) {
	t, ok := p.tests[e.Test]
	if !ok {
		t = &test{}
		p.tests[e.Test] = t
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		t.result = e.Action
	}
}

// finish counts the tests of p and prints its line.
func (s *summary) finish(p *pkg, e testevent.Event, label string) {
	var passed, failed, skipped int
	parents := p.parents()
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		t := p.tests[name]
		if t.result != "pass" && t.result != "skip" {
			fmt.Fprint(s.out, &t.output)
		}
		if parents[name] {
			continue
		}
		switch t.result {
		case "pass":
			passed++
		case "skip":
			skipped++
			s.skips = append(s.skips, fmt.Sprintf("%s.%s%s: %s", e.Package, name, label, reason(t.output.String())))
		default:
			failed++
		}
	}
	if e.Action == "fail" {
		fmt.Fprint(s.out, &p.output)
		failed = max(failed, 1)
	}
	s.passed += passed
	s.failed += failed
	if e.Action != "fail" && len(p.tests) == 0 {
		return // it has no tests, or none that were asked for
	}
	verdict := "ok  "
	if failed > 0 {
		verdict = "FAIL"
	}
	fmt.Fprintf(s.out, "%s %s%s: %d passed, %d failed, %d skipped (%.1fs)\n", verdict, e.Package, label, passed, failed, skipped, e.Elapsed)
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

// close prints the skipped tests and the closing line.
func (s *summary) close() {
	for _, skip := range s.skips {
		fmt.Fprintln(s.out, "SKIP", skip)
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, len(s.skips))
}
