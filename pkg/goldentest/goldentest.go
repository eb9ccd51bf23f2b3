// Package goldentest runs recorded ("golden") cases: the recorded behaviour of another implementation, which the
// platform must match. It is shared by all drivers. A driver is a test of a service that executes the cases of some
// themes: it reads a case's input, lets the service act, and compares. Drivers are in their services' packages and are
// named TestGolden….
//
//	func TestGoldenRetry(t *testing.T) {
//		cases := goldentest.Load(t, "core/retry-*.jsonl")
//		goldentest.Run(t, "retry", cases, func(t *goldentest.T, c goldentest.Case) {
//			switch c.Op() {
//			case "retry":
//				t.Equal(c.At("expect"), retryCase(t, c))
//			default:
//				t.Skipf("no driver for %q", c.Op())
//			}
//		})
//	}
//
// Rules that keep drivers honest:
//
//   - A driver knows the form of its cases, never one case: no ids, no recorded values. Another folder of the same form,
//     with other cases, must run as well (EVALFLEET_GOLDEN). So a driver reads by pattern and decides by op or member.
//   - A case that is known to differ is named in the list of known differences (package known), by a property of the
//     case where that is possible, and is executed all the same. Nothing is skipped in code but what has no driver.
//   - The recorded form is the reference: a driver converts the platform's answer to it, not the other way round.
//
// The packages beside this one: corpus reads cases, match compares, known lists differences, outcome reports.
//
// Four environment variables name the folders and files; a relative path starts at the module's root:
//
//	EVALFLEET_GOLDEN         the folder of cases; default testdata/golden
//	EVALFLEET_GOLDEN_KNOWN   the folder of known differences; default testdata/known-differences
//	EVALFLEET_GOLDEN_REPORT  a folder to which the outcome of each case is written; none by default
package goldentest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/known"
	"github.com/evalfleet/evalfleet/pkg/goldentest/outcome"
)

// Case is one recorded case.
type Case = corpus.Case

// Root returns the folder of cases. It ends the test if there is none.
func Root(t testing.TB) string {
	t.Helper()
	root, _, err := folder("EVALFLEET_GOLDEN", "testdata/golden")
	if err == nil {
		_, err = os.Stat(root)
	}
	if err != nil {
		t.Fatalf("no recorded cases: %v", err)
	}
	return root
}

// Load reads the cases of the files that match the patterns, slash-separated and relative to the folder of cases, as
// "tools/bash.json" or "providers/request/openai/*.json". A pattern without a match ends the test, except in a folder
// that EVALFLEET_GOLDEN names, which need not have every theme.
func Load(t testing.TB, patterns ...string) []Case {
	t.Helper()
	root := Root(t)
	_, given, _ := folder("EVALFLEET_GOLDEN", "")
	cases, err := corpus.Load(root, patterns...)
	if given && errors.Is(err, corpus.ErrNoFile) {
		t.Logf("%v", err)
		err = nil
	}
	if err != nil {
		t.Fatalf("recorded cases: %v", err)
	}
	return cases
}

// settings are read once per process: the list of known differences is the same for all tests, and a process writes one
// report.
var settings = sync.OnceValues(func() (*setting, error) {
	known, err := loadKnown()
	if err != nil {
		return nil, err
	}
	reports, given, err := folder("EVALFLEET_GOLDEN_REPORT", "")
	if err != nil {
		return nil, err
	}
	s := &setting{known: known}
	if given {
		s.reports = outcome.NewFolder(reports)
	}
	return s, nil
})

type setting struct {
	known   *known.List
	reports *outcome.Folder
}

func loadKnown() (*known.List, error) {
	path, _, err := folder("EVALFLEET_GOLDEN_KNOWN", "testdata/known-differences")
	if err != nil {
		return nil, err
	}
	return known.Load(path)
}

// folder returns the folder that the variable names, or the standard one; given reports which. Tests have no
// configuration but the environment, and no other function reads it.
func folder(variable, standard string) (path string, given bool, err error) {
	path, given = standard, false
	if named := os.Getenv(variable); named != "" {
		path, given = named, true
	}
	if filepath.IsAbs(path) {
		return path, given, nil
	}
	root, err := ModuleRoot()
	return filepath.Join(root, filepath.FromSlash(path)), given, err
}

// ModuleRoot is the nearest folder above the working directory, which is the tested package's, that holds go.mod.
func ModuleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod in or above %s", start)
		}
	}
}
