// Package known reads the list of known differences: cases whose recorded result the platform does not produce, either
// not yet (later) or on purpose (design). The list is data, one YAML file per area, each a list of entries:
//
//   - theme: tools/bash               # pattern or list of patterns; a/** is everything below a
//     id: bash-020                    # or ids: [...]; exact: such a case must differ, or the entry is stale
//     rule: has(case.agent.approval)  # or a CEL expression over the case's own fields; it may cover passing cases
//     kind: later                     # or design
//     issue: approval policies        # only of later, and needed there: the name of the issue that builds it
//     reason: why, in words
//     run: false                      # do not execute the case at all; default true
//     fails: 12                       # so many of the recorded cases differ; default 0
//     passes: 3                       # and so many, which the rule covers too, do not; default 0
//     unseen: true                    # no recorded case is of this kind; for cases that are kept elsewhere
//
// An entry with neither ids nor a rule covers every case of its themes. In a rule, `case` is the recorded case and
// text(value) the compact JSON of any value. A rule that fails on a case (a member is absent, a type is another) does
// not cover it.
package known

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
)

// Kind reports whether a difference is to go.
type Kind string

// The kinds of known differences.
const (
	// Later is a capability that is not built yet.
	Later Kind = "later"
	// Design is a decision for another behaviour.
	Design Kind = "design"
)

// Entry covers some cases of some themes.
type Entry struct {
	Theme names  `yaml:"theme"`
	ID    string `yaml:"id"`
	IDs   names  `yaml:"ids"`
	Rule  string `yaml:"rule"`
	Kind  Kind   `yaml:"kind"`
	// Issue names the issue that will build what is missing; of Later entries alone.
	Issue  string `yaml:"issue"`
	Reason string `yaml:"reason"`
	// Run is nil or true when a covered case is executed although it is known to differ.
	Run *bool `yaml:"run"`
	// Fails and Passes are the numbers of covered cases of testdata/golden that differ, and that do not. Cases that no
	// driver executes are in neither.
	Fails  int `yaml:"fails"`
	Passes int `yaml:"passes"`
	// Unseen means that no case of testdata/golden is covered: a decision that only other cases show.
	Unseen bool `yaml:"unseen"`

	// Source names the file and the entry's place in it, for messages.
	Source string `yaml:"-"`

	program cel.Program
}

// Exact reports whether the entry names its cases by id. If such a case passes, the entry is wrong.
func (e *Entry) Exact() bool { return e.ID != "" || len(e.IDs) > 0 }

// Runs reports whether a covered case is executed.
func (e *Entry) Runs() bool { return e.Run == nil || *e.Run }

// Covers reports whether the case is one of the entry's.
func (e *Entry) Covers(c corpus.Case) bool {
	return e.covers(c, func() any { return ruleValue(c.Fields) })
}

// covers reports whether the entry covers a case. It calls value, the case as a value of the rule language, only if the
// entry has a rule.
func (e *Entry) covers(c corpus.Case, value func() any) bool {
	if !slices.ContainsFunc(e.Theme, func(pattern string) bool { return Matches(pattern, c.Theme) }) {
		return false
	}
	if e.Exact() {
		return c.ID == e.ID || slices.Contains(e.IDs, c.ID)
	}
	return e.program == nil || holds(e.program, value())
}

// Matches reports whether an entry's pattern names the theme.
func Matches(pattern, theme string) bool {
	if below, ok := strings.CutSuffix(pattern, "/**"); ok {
		return strings.HasPrefix(theme, below+"/")
	}
	matched, err := path.Match(pattern, theme)
	return matched && err == nil
}

// List is all entries, in the order of the files' names and of the entries in them. It is safe for concurrent use.
type List struct {
	entries []*Entry
}

// Load reads every *.yaml of the folder. An entry that is incomplete, contradicts itself, has an unknown field or a
// rule that does not compile is an error that names it.
func Load(folder string) (*List, error) {
	if _, err := os.Stat(folder); err != nil {
		return nil, fmt.Errorf("known differences: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("known differences: %w", err)
	}
	env, err := ruleEnvironment()
	if err != nil {
		return nil, fmt.Errorf("known differences: %w", err)
	}
	list := &List{}
	for _, file := range files {
		entries, err := readFile(file)
		if err != nil {
			return nil, fmt.Errorf("known differences: %s: %w", file, err)
		}
		for i := range entries {
			entry := &entries[i]
			entry.Source = fmt.Sprintf("%s, entry %d", filepath.Base(file), i+1)
			if err := entry.prepare(env); err != nil {
				return nil, fmt.Errorf("known differences: %s: %w", entry.Source, err)
			}
			list.entries = append(list.entries, entry)
		}
	}
	return list, nil
}

// Entries returns the entries; they are not to be changed.
func (l *List) Entries() []*Entry { return l.entries }

// Find returns the first entry that covers the case, one by id before one by rule, or nil.
func (l *List) Find(c corpus.Case) *Entry {
	var found *Entry
	value := sync.OnceValue(func() any { return ruleValue(c.Fields) })
	for _, entry := range l.entries {
		switch {
		case found != nil && !entry.Exact(), !entry.covers(c, value):
			continue
		case entry.Exact():
			return entry
		}
		found = entry
	}
	return found
}

func readFile(file string) ([]Entry, error) {
	content, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }()
	decoder := yaml.NewDecoder(content)
	decoder.KnownFields(true)
	var entries []Entry
	if err := decoder.Decode(&entries); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return entries, nil
}

func (e *Entry) prepare(env *cel.Env) error {
	switch {
	case len(e.Theme) == 0:
		return errors.New("names no theme")
	case e.Kind != Later && e.Kind != Design:
		return fmt.Errorf("kind is %q, not later or design", e.Kind)
	case (e.Kind == Later) != (strings.TrimSpace(e.Issue) != ""):
		return errors.New("is to name an issue if its kind is later, and only then")
	case strings.TrimSpace(e.Reason) == "":
		return errors.New("gives no reason")
	case e.Exact() && e.Rule != "":
		return errors.New("has both ids and a rule")
	}
	for _, pattern := range e.Theme {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("theme %q: %w", pattern, err)
		}
	}
	if e.Rule == "" {
		return nil
	}
	var err error
	e.program, err = compile(env, e.Rule)
	return err
}

// names is a list in YAML that may be written as one text.
type names []string

func (n *names) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*n = names{node.Value}
		return nil
	}
	return node.Decode((*[]string)(n))
}
