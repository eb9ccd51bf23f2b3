// Package pyregexp runs regular expressions that are written in the syntax of Python's re.
//
// Patterns in task files come from evaluations made for Python and need what Go's regexp lacks: lookaround,
// backreferences and a backtracking order. The engine is github.com/dlclark/regexp2; this package translates the
// syntax, numbers groups as Python does (named groups take part in the count) and bounds the time of a match. What
// still differs from re:
//
//   - possessive quantifiers (`a++`), the flags `a` and `L` and `\N{…}` are refused;
//   - lookbehind may have any length, and `\p{…}` is allowed.
package pyregexp

import (
	"errors"
	"fmt"
	"time"

	"github.com/dlclark/regexp2"
)

// MatchTimeout bounds one search, since a backtracking engine may take exponential time.
const MatchTimeout = time.Second

// maxPatternBytes bounds a pattern; real ones are far shorter.
const maxPatternBytes = 16 << 10

// ErrTimeout is the error if a search takes longer than MatchTimeout.
var ErrTimeout = errors.New("the pattern backtracks for too long on this text: make it less ambiguous, for example by anchoring it or by narrowing `.*`")

// Regexp is a compiled pattern. It is safe for concurrent use.
//
// Its first search starts a clock goroutine of the engine that ends by itself some time after the last search; tests
// that look for leaked goroutines call regexp2.StopTimeoutClock first.
type Regexp struct {
	engine *regexp2.Regexp
	names  map[string]int
	groups int
}

// Compile translates and compiles a pattern; the error describes the fault of the pattern.
func Compile(pattern string, ignoreCase bool) (re *Regexp, err error) {
	if len(pattern) > maxPatternBytes {
		return nil, fmt.Errorf("the pattern has %d bytes, more than the %d allowed", len(pattern), maxPatternBytes)
	}
	translated, err := translate(pattern)
	if err != nil {
		return nil, err
	}
	options := regexp2.RegexOptions(regexp2.None)
	if ignoreCase {
		options = regexp2.IgnoreCase
	}
	engine, err := regexp2.Compile(translated.pattern, options)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	engine.MatchTimeout = MatchTimeout
	return &Regexp{engine: engine, names: translated.names, groups: translated.groups}, nil
}

// Groups returns the number of capturing groups, the whole match not counted.
func (re *Regexp) Groups() int { return re.groups }

// Group returns the number of a named group.
func (re *Regexp) Group(name string) (int, bool) {
	n, ok := re.names[name]
	return n, ok
}

// Match is the result of a search. The text of group 0 is the whole match.
type Match struct {
	groups []group
}

type group struct {
	text string
	took bool
}

// Group returns the text of a group, and false when the group took no part in the match or does not exist.
func (m Match) Group(n int) (string, bool) {
	if n < 0 || n >= len(m.groups) {
		return "", false
	}
	return m.groups[n].text, m.groups[n].took
}

// Len returns the number of groups, the whole match not counted.
func (m Match) Len() int { return len(m.groups) - 1 }

// Search finds the leftmost match in text, like re.search. Found is false if there is none; the only error is
// ErrTimeout.
func (re *Regexp) Search(text string) (m Match, found bool, err error) {
	result, err := re.engine.FindStringMatch(text)
	if err != nil {
		return Match{}, false, ErrTimeout
	}
	if result == nil {
		return Match{}, false, nil
	}
	for _, g := range result.Groups() {
		m.groups = append(m.groups, group{text: g.String(), took: len(g.Captures) > 0})
	}
	return m, true, nil
}
