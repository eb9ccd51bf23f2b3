package yamlnode_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/yamlnode"
)

// layers is a document of n lines, each of which holds the one before it ten times.
func layers(n int, first, before, after string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "a0: &a0 %s\n", first)
	for i := 1; i < n; i++ {
		alias := fmt.Sprintf("*a%d", i-1)
		fmt.Fprintf(&b, "a%d: &a%d %s%s%s\n", i, i, before, strings.Repeat(alias+", ", 9)+alias, after)
	}
	return b.String()
}

// bombs are short texts that expand to more than any reader can hold.
func bombs() map[string]struct {
	text string
	want error
	say  string
} {
	return map[string]struct {
		text string
		want error
		say  string
	}{
		"a list that holds itself":   {"entries: &a [*a]", yamlnode.ErrCycle, "line 1: *a: the value contains itself"},
		"a map that holds itself":    {"x:\n  &a {b: *a}", yamlnode.ErrCycle, "line 2"},
		"a map that merges itself":   {"metadata: &a {<<: {<<: *a}}", yamlnode.ErrCycle, "line 1: *a"},
		"a key that holds its map":   {"&a {*a : b}", yamlnode.ErrCycle, ""},
		"a cycle of two":             {"&a [&b [*a], *b]", yamlnode.ErrCycle, ""},
		"lists of lists":             {layers(8, "[x]", "[", "]"), yamlnode.ErrTooLarge, "unfolds to more than 100000 values"},
		"merges of merges":           {layers(40, "{k: v}", "{<<: [", "]}"), yamlnode.ErrTooLarge, "line"},
		"one long text many times":   {"a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a, ", 3000) + "]", yamlnode.ErrTooLarge, "line 2: the YAML is too large: it unfolds to more than 67108864 bytes"},
		"lists in lists":             {strings.Repeat("[", 1001) + strings.Repeat("]", 1001), yamlnode.ErrTooDeep, "deeper than 1000 levels"},
		"lists in lists, by aliases": {"a: &a " + strings.Repeat("[", 600) + strings.Repeat("]", 600) + "\nb: " + strings.Repeat("[", 600) + "*a" + strings.Repeat("]", 600), yamlnode.ErrTooDeep, "line 2"},
		"lists beyond the parser":    {strings.Repeat("[", 100_000), nil, "exceeded max depth"},
		"many values":                {strings.Repeat("- a\n", 100_001), yamlnode.ErrTooLarge, "more than 100000 values"},
		"more values than are read":  {strings.Repeat("- \n", 4<<20), yamlnode.ErrTooLarge, "more than 1000000"},
		"more bytes than are read":   {strings.Repeat("x", bound.YAMLBytes+1), yamlnode.ErrTooLarge, "more than 16777216"},
		"many keys":                  {keys(10_001), yamlnode.ErrTooLarge, "more than 10000 keys"},
		"many keys by merges":        {"a: &a {" + strings.Repeat("k: v, ", 9_000) + "}\nb:\n  <<: *a\n" + indented(keys(1_100)), yamlnode.ErrTooLarge, "line 3: the YAML is too large: a map has more than 10000 keys"},
		"many keys by a list":        {"a: &a {" + strings.Repeat("k: v, ", 6_000) + "}\nb: {<<: [*a, *a]}", yamlnode.ErrTooLarge, "line 2"},
		"a second document":          {"a: b\n---\nc: d", nil, "line 2: there is more than one YAML document"},
	}
}

func keys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: v\n", i)
	}
	return b.String()
}

func indented(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// The memory that parsing takes does not depend on what the text expands to.
func TestBombsAreRefusedInLittleMemory(t *testing.T) {
	const most = 512 << 20
	for name, tt := range bombs() {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := yamlnode.Parse([]byte(tt.text))
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
			}
			assert.ErrorContains(t, err, tt.say)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(most), "bytes allocated")
		})
	}
}

func TestWhatIsWithinTheBoundsIsRead(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"aliases":             "a: &a [1, 2]\nb: [*a, *a]\nc: {<<: {d: *a}}",
		"an anchor again":     "a: &a 1\nb: &a [x]\nc: *a",
		"a depth":             strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
		"keys":                keys(10_000),
		"values":              strings.Repeat("- a\n", 99_999),
		"an alias many times": "a: &a x\nb: [" + strings.Repeat("*a, ", 50_000) + "]",
		"one long text":       strings.Repeat("x", bound.YAMLBytes),
		"one document's end":  "---\na: b\n...\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := yamlnode.Parse([]byte(text))
			require.NoError(t, err)
			require.NotNil(t, n)
		})
	}
	for _, text := range []string{"", "\n", "# nothing", "---"} {
		_, err := yamlnode.Parse([]byte(text))
		require.NoError(t, err, "%q", text)
	}
}

// A tree that was taken can be walked through its aliases, and decoded, within the bounds.
func FuzzParse(f *testing.F) {
	for _, b := range bombs() {
		if len(b.text) < 1000 {
			f.Add([]byte(b.text))
		}
	}
	for _, seed := range []string{"a: &a [1]\nb: *a", "? [x]\n: y", "!!set {a}", "%TAG ! !\n---\n! a", "- |\n x\n- >-\n y", "a: 2020-01-01", "&a b: *a", "# c\na: b # d"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := yamlnode.Parse(text)
		if err != nil || n == nil {
			return
		}
		if left := walk(n, bound.YAMLNodes); left < 0 {
			t.Fatalf("%q unfolds to more than %d values", text, bound.YAMLNodes)
		}
		var v any
		_ = n.Decode(&v) // It may not fit, but must end.
	})
}

// walk returns how many of left values remain after those that n unfolds to.
func walk(n *yaml.Node, left int) int {
	if n.Kind == yaml.AliasNode {
		return walk(n.Alias, left)
	}
	left--
	for _, child := range n.Content {
		if left < 0 {
			break
		}
		left = walk(child, left)
	}
	return left
}
