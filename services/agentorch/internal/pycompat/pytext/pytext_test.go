package pytext_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

func TestFoldIsFullFolding(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"Paris": "paris", "straße": "strasse", "İ": "i̇", "ﬁ": "fi", "Σς": "σσ", "plain": "plain"} {
		assert.Equal(t, want, pytext.Fold(text))
	}
	assert.Equal(t, "straße", pytext.Lower("STRAßE"), "lowering is no folding")
}

func TestWhiteSpaceIsPythons(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"a", "b", "c"}, pytext.Fields("\u3000a\x1cb\u00a0\n c\u2028"))
	assert.Equal(t, "a b", pytext.Trim("\t\x1f a b\u00a0"))
	assert.Equal(t, "Paris", pytext.TrimPunctuation(" **\"Paris\"!** "))
	assert.Equal(t, "«Paris»", pytext.TrimPunctuation("«Paris»."), "only ASCII punctuation")
}

func TestWordsHaveNumbersAndNoMarks(t *testing.T) {
	t.Parallel()
	for _, r := range "aé_1²½Ⅻ٤一" {
		assert.True(t, pytext.IsWord(r), "%c", r)
	}
	for _, r := range " -.$\u0301‿" {
		assert.False(t, pytext.IsWord(r), "%U", r)
	}
}

func TestParseFloat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{
		"1": 1, " -2.5\n": -2.5, "1e3": 1000, ".5": 0.5, "5.": 5, "1_000": 1000, "1_0.0_1": 10.01, "٤٢": 42, "１２": 12, "+7": 7,
		"1e400": math.Inf(1), "-Infinity": math.Inf(-1), "+inf": math.Inf(1), "NaN": math.NaN(), "-nan": math.NaN(),
	} {
		got, ok := pytext.ParseFloat(text)
		require.True(t, ok, text)
		if math.IsNaN(want) {
			assert.True(t, math.IsNaN(got), text)
			continue
		}
		assert.InDelta(t, want, got, 0, text)
	}
	for _, text := range []string{"", " ", "x", "0x10", "1__0", "_1", "1_", "1_.5", "1e", "e5", "1 2", "1,000", "+-1", "--nan", "infin", "1e5_", "½", "\x1c3", "3\x1f"} {
		_, ok := pytext.ParseFloat(text)
		assert.False(t, ok, text)
	}
	_, ok := pytext.ParseFinite("inf")
	assert.False(t, ok)
}

func TestFormatFloatIsRepr(t *testing.T) {
	t.Parallel()
	for f, want := range map[float64]string{
		0: "0.0", 1: "1.0", -2.5: "-2.5", 0.1: "0.1", 1e15: "1000000000000000.0", 1e16: "1e+16", 0.0001: "0.0001", 0.00001: "1e-05", math.Inf(-1): "-inf",
	} {
		assert.Equal(t, want, pytext.FormatFloat(f))
	}
	assert.Equal(t, "nan", pytext.FormatFloat(math.NaN()))
}

func TestTextOfJSON(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		`"x\ny"`: "x\ny", `42`: "42", `-0`: "0", `100000000000000000000000`: "100000000000000000000000", `1.0`: "1.0", `1e22`: "1e+22", `1e999`: "inf",
		`true`: "True", `null`: "None", `[1,"a'b",null]`: `[1, "a'b", None]`, `{"b":[],"a":{"k":false}}`: "{'b': [], 'a': {'k': False}}",
		`["it's \"x\"","\\","\n\t\u0001é\u2028😀\u00a0"]`: `['it\'s "x"', '\\', '\n\t\x01é\u2028😀\xa0']`,
	} {
		value, err := orderedjson.Decode([]byte(document))
		require.NoError(t, err)
		assert.Equal(t, want, pytext.Str(value))
	}
}

func TestMatchGlob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true},
		{"*", "", true},
		{"a*", "a/b\n", true},
		{"a*c*e", "abcde", true},
		{"a*c*e", "abcdf", false},
		{"?", "é", true},
		{"?", "", false},
		{"[ab]1", "b1", true},
		{"[!ab]1", "b1", false},
		{"[!ab]1", "c1", true},
		{"[a-c]", "b", true},
		{"[c-a]", "b", false},
		{"[a-]", "-", true},
		{"[]]", "]", true},
		{"[!]]", "]", false},
		{"[*]", "*", true},
		{"[*]", "x", false},
		{"[a", "[a", true},
		{"A", "a", false},
		{"x_*", "x_1", true},
		{"**a", "ba", true},
	} {
		assert.Equal(t, c.want, pytext.MatchGlob(c.pattern, c.name), "%q with %q", c.pattern, c.name)
	}
}

func FuzzMatchGlob(f *testing.F) {
	f.Add("a*[!b]?", "axyz")
	f.Add("[", "[")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		pytext.MatchGlob(pattern, name)
		require.True(t, pytext.MatchGlob("*", name))
	})
}

func FuzzParseFloat(f *testing.F) {
	f.Add("1_000.5e-3")
	f.Add("-nan")
	f.Fuzz(func(t *testing.T, text string) {
		value, ok := pytext.ParseFloat(text)
		if !ok || math.IsNaN(value) {
			return
		}
		again, ok := pytext.ParseFloat(pytext.FormatFloat(value))
		require.True(t, ok)
		require.InDelta(t, value, again, 0)
	})
}
