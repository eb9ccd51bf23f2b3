package pyregexp_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pyregexp"
)

// groups returns the texts of all groups, the whole match first, "-" for one that took no part; nil without a match.
func groups(t *testing.T, pattern string, ignoreCase bool, text string) []string {
	t.Helper()
	re, err := pyregexp.Compile(pattern, ignoreCase)
	require.NoError(t, err)
	m, found, err := re.Search(text)
	require.NoError(t, err)
	if !found {
		return nil
	}
	var all []string
	for i := 0; i <= m.Len(); i++ {
		s, took := m.Group(i)
		if !took {
			s = "-"
		}
		all = append(all, s)
	}
	return all
}

func TestSearch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, pattern, text string
		ignoreCase          bool
		want                []string
	}{
		{"leftmost", `\d+`, "a 12 b 345", false, []string{"12"}},
		{"ignoring case", `answer: (\w)`, "ANSWER: b", true, []string{"ANSWER: b", "b"}},
		{"named groups count in order", `(?P<a>x)(y)(?P<b>z)`, "xyz", false, []string{"xyz", "x", "y", "z"}},
		{"reference by name", `(?P<a>.)(?P=a)1`, "bb1", false, []string{"bb1", "b"}},
		{"reference before a digit", `(?P<a>.)(?P=a)0`, "bb0", false, []string{"bb0", "b"}},
		{"group that took no part", `(a)|(b)`, "b", false, []string{"b", "-", "b"}},
		{"conditional by name", `(?P<q>")?x(?(q)"|!)`, `"x" x!`, false, []string{`"x"`, `"`}},
		{"Z is the very end", `a\Z`, "a\n", false, nil},
		{"dollar is before the last line break too", `a$`, "a\n", false, []string{"a"}},
		{"at most", `^a{,2}$`, "aaa", false, nil},
		{"at most, met", `^a{,2}$`, "aa", false, []string{"aa"}},
		{"a bracket in a set", `[[a]+`, "[a]", false, []string{"[a"}},
		{"a closing bracket first in a set", `[]a]+`, "]a[", false, []string{"]a"}},
		{"lookbehind", `(?<=\$)\d+`, "12 $34", false, []string{"34"}},
		{"words have numbers", `\w+`, "10²", false, []string{"10²"}},
		{"words have no marks", `\w+`, "a\u0301b", false, []string{"a"}},
		{"edges of words", `\ba\b`, "ab a²a a", false, []string{"a"}},
		{"not an edge", `a\Bb`, "ab", false, []string{"ab"}},
		{"letters as words without digits", `[^\W\d]+`, "42 is Paris", false, []string{"is"}},
		{"letters, the other way round", `[^\d\W]+`, "x7", false, []string{"x"}},
		{"a digit is no letter", `[^\W\d_]+`, "7_", false, nil},
		{"negated sets of two complements", `[^\W\S]`, "a 1", false, nil},
		{"a complement and members", `[\Wab]+`, "x-a:b1", false, []string{"-a:b"}},
		{"complements side by side", `[\W\D]+`, "12a-3", false, []string{"a-"}},
		{"a set of one complement", `[\S]+`, " a\x1c", false, []string{"a"}},
		{"no complement of digits", `[^\D]+`, "ab12", false, []string{"12"}},
		{"a complement takes marks", `[\W]`, "a\u0301", false, []string{"\u0301"}},
		{"a complement and a bracket first", `[^]\W]+`, "]a]", false, []string{"a"}},
		{"a complement behind", `(?<=[^\W\d])\d`, "12 a3", false, []string{"3"}},
		{"a complement takes line breaks", `[^\S ]`, " \n", false, []string{"\n"}},
		{"white space", `a\sb`, "a\x1cb", false, []string{"a\x1cb"}},
		{"verbose with a comment", "(?x) a  # the ( is no group\n (b)", "ab", false, []string{"ab", "b"}},
		{"comment", `a(?#not (this)b`, "ab", false, []string{"ab"}},
		{"flags of a part", `(?i:a)b`, "Ab AB", false, []string{"Ab"}},
		{"unicode flag", `(?u)é`, "é", false, []string{"é"}},
		{"long escape", `\U0001F600`, "x😀", false, []string{"😀"}},
		{"escaped underscore", `a\_b`, "a_b", false, []string{"a_b"}},
		{"flags behind flags", "(?i)(?#c)(?s)a.b", "A\nB", false, []string{"A\nB"}},
		{"flags behind white space and a comment", "(?x) (?i) # (\n(?s) a.b", "A\nB", false, []string{"A\nB"}},
		{"a character by its number", `\101(b)\1`, "Abb", false, []string{"Abb", "b"}},
		{"a reference and a digit", `(a)\1[0]`, "aa0", false, []string{"aa0", "a"}},
		{"atomic", `(?>a+)ab`, "aaab", false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, groups(t, c.pattern, c.ignoreCase, c.text))
		})
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		"(", "[a", "a++", `a\`, `\N{DASH}`, "(?a)x", "(?L)x", `\Uzz`, `\U00110000`, "(?P<a>x)(?P<a>y)", "(?P<1>x)", "(?P=a)", "(?(2)a|b)", "(?<a>x)", "(?'a'x)", "(?P>a)",
		"*", strings.Repeat("a", 20<<10), `\e`, `\G`, `\z`, `[\Z]`, `\1(a)`, `(a)\10`, "a(?i)", "(?#c)a(?x)", " (?i)a", "(?x) (?x:) (?i)a",
	} {
		_, err := pyregexp.Compile(pattern, false)
		assert.Error(t, err, "%.40q", pattern)
	}
}

func TestGroupsByName(t *testing.T) {
	t.Parallel()
	re, err := pyregexp.Compile(`(x)(?P<num>\d)`, false)
	require.NoError(t, err)
	assert.Equal(t, 2, re.Groups())
	n, ok := re.Group("num")
	assert.True(t, ok)
	assert.Equal(t, 2, n)
	_, ok = re.Group("other")
	assert.False(t, ok)
}

func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	re, err := pyregexp.Compile(`^(a+)+$`, false)
	require.NoError(t, err)
	_, _, err = re.Search(strings.Repeat("a", 60) + "b")
	require.ErrorIs(t, err, pyregexp.ErrTimeout)
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{`(?P<a>\d+)(?P=a){,3}[^]\w]\Z`, `(?x) # (`, `(?(1)a|b)`, `(?i-s:[[a]])`, `\U0001F600\_`} {
		f.Add(seed, "a1b2")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 40 || len(text) > 20 {
			t.Skip("small enough that no search runs long")
		}
		re, err := pyregexp.Compile(pattern, true)
		if err != nil {
			return
		}
		m, found, err := re.Search(text)
		if err == nil && found {
			require.Equal(t, re.Groups(), m.Len(), "both sides count groups alike")
		}
	})
}
