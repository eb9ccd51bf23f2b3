package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// What a row's status may be.
const (
	done      = "done"      // served: names its RPC and a test
	planned   = "planned"   // not served yet
	deviation = "deviation" // served in another way or not at all: the note says why
)

// modules gives the highest number in use for each module's letter. Ids never change; a new row takes the
// next number and raises it.
var modules = []struct {
	letter string
	last   int
}{{"M", 300}, {"T", 254}, {"A", 265}}

type row struct {
	line                     int
	id, symbol, status, note string
	rpcs                     []string // Service.Method
	tests                    []testRef
}

// testRef names a test as package.Test, with the package's folder for its path.
type testRef struct {
	dir  string
	test string // TestX or TestX/sub
}

func (t testRef) String() string { return t.dir + "." + t.test }

// top is the name of the test function.
func (t testRef) top() string {
	top, _, _ := strings.Cut(t.test, "/")
	return top
}

var (
	idPattern   = regexp.MustCompile(`^[MTA]\d{3}$`)
	testPattern = regexp.MustCompile(`^([a-z0-9/_-]+)\.(Test[A-Za-z0-9_]*(?:/\S+)?)$`)
	nonePattern = regexp.MustCompile(`^[–-]?$`)
)

// parse reads the rows of a Markdown table with the columns id, symbol, status, RPC, test and note.
// Lines whose first cell is not an id are prose or heads. The error joins every fault.
func parse(table string) ([]row, error) {
	var rows []row
	var faults []error
	number := 0
	for line := range strings.Lines(table) {
		number++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if !idPattern.MatchString(cells[0]) {
			continue
		}
		if len(cells) != 6 {
			faults = append(faults, fmt.Errorf("line %d: %s has %d cells, want id, symbol, status, RPC, test and note", number, cells[0], len(cells)))
			continue
		}
		r := row{line: number, id: cells[0], symbol: cells[1], status: cells[2], rpcs: list(cells[3]), note: cells[5]}
		for _, name := range list(cells[4]) {
			m := testPattern.FindStringSubmatch(name)
			if m == nil {
				faults = append(faults, fmt.Errorf("line %d: %s: test %q is not of the form path/to/package.TestName", number, r.id, name))
				continue
			}
			r.tests = append(r.tests, testRef{dir: m[1], test: m[2]})
		}
		rows = append(rows, r)
	}
	return rows, errors.Join(faults...)
}

// list splits a cell of names, each in backquotes or bare, at commas.
func list(cell string) []string {
	var names []string
	for name := range strings.SplitSeq(cell, ",") {
		name = strings.Trim(strings.TrimSpace(name), "`")
		if !nonePattern.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// verify checks that every id is there once and that each row has what its status asks for.
func verify(rows []row, rpcs map[string]bool) error {
	var faults []error
	fault := func(r row, format string, args ...any) {
		faults = append(faults, fmt.Errorf("line %d: %s %s: %s", r.line, r.id, r.symbol, fmt.Sprintf(format, args...)))
	}

	seen := map[string]int{}
	for _, r := range rows {
		if first, ok := seen[r.id]; ok {
			fault(r, "stands on line %d already", first)
		}
		seen[r.id] = r.line
		switch r.status {
		case done:
			if len(r.rpcs) == 0 {
				fault(r, "is done but names no RPC")
			}
			if len(r.tests) == 0 {
				fault(r, "is done but names no test")
			}
		case deviation:
			if nonePattern.MatchString(r.note) {
				fault(r, "is a deviation but gives no reason")
			}
		case planned:
		default:
			fault(r, "has status %q, want done, planned or deviation", r.status)
		}
		for _, rpc := range r.rpcs {
			if !rpcs[rpc] {
				fault(r, "names %s, which no proto file declares", rpc)
			}
		}
	}
	for _, m := range modules {
		for n := range m.last {
			id := fmt.Sprintf("%s%03d", m.letter, n+1)
			if seen[id] == 0 {
				faults = append(faults, fmt.Errorf("row %s is missing", id))
			}
			delete(seen, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		faults = append(faults, fmt.Errorf("line %d: %s is not an id in use", seen[id], id))
	}
	return errors.Join(faults...)
}

var (
	servicePattern = regexp.MustCompile(`(?m)^service (\w+)`)
	rpcPattern     = regexp.MustCompile(`(?m)^\s*rpc (\w+)\s*\(`)
)

// declaredRPCs returns the RPCs of every proto file under protos, as Service.Method.
func declaredRPCs(protos fs.FS) (map[string]bool, error) {
	rpcs := map[string]bool{}
	err := fs.WalkDir(protos, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".proto") {
			return err
		}
		text, err := fs.ReadFile(protos, path)
		if err != nil {
			return err
		}
		services := servicePattern.FindAllSubmatchIndex(text, -1)
		for i, at := range services {
			name, body := string(text[at[2]:at[3]]), text[at[1]:]
			if i+1 < len(services) {
				body = text[at[1]:services[i+1][0]]
			}
			for _, m := range rpcPattern.FindAllSubmatch(body, -1) {
				rpcs[name+"."+string(m[1])] = true
			}
		}
		return nil
	})
	return rpcs, err
}
