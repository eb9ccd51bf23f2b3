package yaml11_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/argument/yaml11"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/pkg/yamlnode"
)

func TestScalars(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                      `null`,
		"~":                     `null`,
		"Null":                  `null`,
		"# a comment":           `null`,
		"nUll":                  `"nUll"`,
		"yes":                   `true`,
		"On":                    `true`,
		"off":                   `false`,
		"NO":                    `false`,
		"y":                     `"y"`,
		"yEs":                   `"yEs"`,
		"0":                     `0`,
		"-12":                   `-12`,
		"+7":                    `7`,
		"010":                   `8`,
		"-010":                  `-8`,
		"089":                   `"089"`,
		"0x1F":                  `31`,
		"0b101":                 `5`,
		"0b_":                   `"0b_"`,
		"0o17":                  `"0o17"`,
		"1_000":                 `1000`,
		"12:30":                 `750`,
		"-1:00:00":              `-3600`,
		"12:99":                 `"12:99"`,
		"123456789012345678901": `123456789012345678901`,
		"2.50":                  `2.5`,
		"2.":                    `2.0`,
		".5":                    `0.5`,
		"1e3":                   `"1e3"`,
		"1.0e3":                 `"1.0e3"`,
		"1.0e+3":                `1000.0`,
		"1.0e+30":               `1e+30`,
		"1.0e+999":              `"1.0e+999"`,
		"1:30.5":                `90.5`,
		".inf":                  `".inf"`,
		".NaN":                  `".NaN"`,
		"2024-05-06":            `"2024-05-06"`,
		"2024-05-06 07:08:09Z":  `"2024-05-06 07:08:09Z"`,
		`"yes"`:                 `"yes"`,
		`'010'`:                 `"010"`,
		"a # b":                 `"a"`,
		"line one\nline two":    `"line one line two"`,
		"|\n  a\n  b\n":         `"a\nb\n"`,
		"&a b":                  `"b"`,
		`"\ud83d\ude00"`:        `"😀"`,
		`"a\uD83D\uDE00\\n"`:    `"a😀\\n"`,
		`"\ud83d"`:              `"�"`,
		`"\\ud83d\ude00\ud83d"`: `"\\ud83d��"`,
		`a "\ud83d\ude00" b`:    `"a \"\\ud83d\\ude00\" b"`,
		`'\ud83d\ude00'`:        `"\\ud83d\\ude00"`,
		"!!str 12":              `"12"`,
		`!!int "12"`:            `12`,
		"!!null x":              `null`,
		"ls -la | grep '<x>' &": `"ls -la | grep '<x>' &"`,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			got, err := yaml11.ToJSON(text)
			require.NoError(t, err)
			assert.Equal(t, want, string(got))
		})
	}
}

func TestStructures(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"- a\n- 010":                          `["a",8]`,
		"- - - x":                             `[[["x"]]]`,
		"[1, yes, {a: b}]":                    `[1,true,{"a":"b"}]`,
		"--- a\n":                             `"a"`,
		"b: 1\na: 2":                          `{"b":1,"a":2}`,
		"b: 1\na: 2\nb: 3":                    `{"b":3,"a":2}`,
		"1: x\nyes: y\n~: z":                  `{"1":"x","true":"y","null":"z"}`,
		"'a<b>&c': 1":                         `{"a<b>&c":1}`,
		"a: &x [1]\nb: *x":                    `{"a":[1],"b":[1]}`,
		"base: &x {a: 1, b: 2}\n<<: *x\nb: 3": `{"a":1,"b":3,"base":{"a":1,"b":2}}`,
		"{a: [1, 2], <<: {c: 3}}":             `{"c":3,"a":[1,2]}`,
		"<<: [{a: 1}, {a: 2, b: 2}]":          `{"a":1,"b":2}`,
		"=: 1":                                `{"=":1}`,
		"'<<': 1":                             `{"<<":1}`,
		"!!set {a, b}":                        `{"a":null,"b":null}`,
		"!!omap [a: 1]":                       `[{"a":1}]`,
		"!!timestamp 2024-05-06":              `"2024-05-06"`,
		`"a\u00e9"`:                           `"aé"`,
		"a: \"x\ty\" # a\ttab\nb: 'it''s\t'":  `{"a":"x\ty","b":"it's\t"}`,
		"a: |\n  x\ty\n  \tz\nb: c":           `{"a":"x\ty\n\tz\n","b":"c"}`,
		"# a\ttab":                            `null`,
		"? |-\n  'x\ty'":                      `{"'x\ty'":null}`,
		"? |-\n  x\ty\n:\n":                   `{"x\ty":null}`,
		"é: 'x\ty'\r\nè: [\"\t\"]":            `{"é":"x\ty","è":["\t"]}`,
		"'a\tb'#\tc":                          `"a\tb"`,
		"a: |\r  x\ty\rb: c":                  `{"a":"x\ty\n","b":"c"}`,
		"a: !!str # it's\n  \"x\ty\"":         `{"a":"x\ty"}`,
		"\ufeff'x\ty'":                        `"x\ty"`,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			got, err := yaml11.ToJSON(text)
			require.NoError(t, err)
			assert.Equal(t, want, string(got))
		})
	}
}

func TestWhatIsNoDocumentIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a reserved sign":            "@handle",
		"an alias without a name":    "*",
		"an unknown alias":           "*a",
		"an open list":               "[1",
		"a tab in plain text":        "a\tb",
		"a line that begins with it": "if x:\n\tpass",
		"a tab after a colon":        "a:\tb",
		"a tab before a comment":     "'x'\t# y",
		"a tab after quoted text":    "a: \"x\ty\"\nb: c\td",
		"a tab before block text":    "!!str\n  |\t\n  x",
		"a tab after an alias":       "- &a |\n  x\n- *a\t",
		"a tab after an empty list":  "- |\n  x\n- []\t",
		"two maps in one line":       "a: b: c",
		"a control character":        "a: \x00",
		"text that is not UTF-8":     "a\xff",
		"two documents":              "a\n---\nb",
		"a broken second document":   "a\n---\n[",
		"a list as a key":            "? [1]\n: 2",
		"a tag of a language":        "!!python/object:os.system {}",
		"a tag of its own on text":   "!mine 5",
		"a tag of its own on a list": "!mine [1]",
		"a sign of a value":          "a: =",
		"a sign of a merge":          "- <<",
		"a merged scalar":            "<<: 5",
		"a merged list of scalars":   "<<: [1]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := yaml11.ToJSON(text)
			require.Error(t, err)
		})
	}
}

func TestExhaustionIsRefused(t *testing.T) {
	t.Parallel()
	_, err := yaml11.ToJSON("&a [*a]")
	require.ErrorIs(t, err, yamlnode.ErrCycle)
	_, err = yaml11.ToJSON("&a {<<: *a}")
	require.ErrorIs(t, err, yamlnode.ErrCycle)

	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 9; i++ {
		prev, this := string(rune('0'+i-1)), string(rune('0'+i))
		bomb += "a" + this + ": &a" + this + " [" + strings.Repeat("*a"+prev+", ", 9) + "*a" + prev + "]\n"
	}
	_, err = yaml11.ToJSON(bomb)
	require.ErrorIs(t, err, yamlnode.ErrTooLarge)
}

// A tab does not make the time of a text grow with the square of its length.
func TestTabsOfLongTextsAreFoundInOnePass(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("a", 4<<20) + "\t\""
	for name, text := range map[string]string{
		"quoted texts in one line": "[" + long + strings.Repeat(`,"a"`, 50_000) + "]",
		"blocks":                   strings.Repeat("- |\n a\n", 50_000) + "- " + long,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			document, err := yaml11.ToJSON(text)
			require.NoError(t, err)
			assert.Greater(t, len(document), len(long))
			assert.Less(t, time.Since(begun), waittest.Bound)
		})
	}
}

func FuzzToJSON(f *testing.F) {
	for _, seed := range []string{"", "yes", "12:30", "a: b", "- [1, {b: *x}]", "&a [*a]", "<<: {a: 1}", "!!set {a}", "'\\u0000'", "a\n---\nb", "0x_", "1_:2.", "%TAG ! !", "a: |\n  \tb\nc: \"\t\"#\t", "'a''\t"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := yaml11.ToJSON(text)
		if err == nil && !json.Valid(got) {
			t.Fatalf("%q became invalid JSON: %s", text, got)
		}
	})
}

// Integers are exact, and the time of many digits is not that of their count times their count.
func TestLongIntegers(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	digits := strings.Repeat("1234567890", 400_000)
	for text, want := range map[string]string{"+" + digits: digits, "-" + digits: "-" + digits} {
		got, err := yaml11.ToJSON(text)
		require.NoError(t, err)
		assert.Equal(t, want, string(got), "the digits stay")
	}
	for _, text := range []string{"0x" + strings.Repeat("9a", 100_000), "0" + strings.Repeat("71", 100_000), "0b" + strings.Repeat("10", 200_000), "1" + strings.Repeat(":1", 450_000)} {
		_, err := yaml11.ToJSON(text)
		require.NoError(t, err)
	}
	assert.Less(t, time.Since(begun), waittest.Bound)
}
