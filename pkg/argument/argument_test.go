package argument_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/argument"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, first, want string }{
		{"an object stays as it is", `{"y": 2,  "x": 1.0}`, "command", `{"y": 2,  "x": 1.0}`},
		{"blanks around it go", " \n {\"x\": 1} \n", "", `{"x": 1}`},
		{"stray quotes behind it go", `{"x": 1} " "` + "\n", "", `{"x": 1}`},
		{"the last of equal names counts", `{"x": 1, "x": 2}`, "", `{"x":2}`},
		{"half a surrogate pair", `{"x": "\ud83c"}`, "", `{"x":"` + "\ufffd" + `"}`},
		{"big integers survive", `{"x": 123456789012345678901234567890}`, "", `{"x": 123456789012345678901234567890}`},
		{"bare text is the first parameter", "ls -la", "command", `{"command":"ls -la"}`},
		{"by the rules of YAML 1.1", "12:30", "command", `{"command":750}`},
		{"lists too", "- a\n- b", "items", `{"items":["a","b"]}`},
		{"text that is no YAML", "@handle", "command", `{"command":"@handle"}`},
		{"text without a parameter", "anything", "", `{}`},
		{"empty text", "", "command", `{"command":null}`},
		{"empty text without a parameter", "", "", `{}`},
		{"markup is not escaped", "echo <a> && b", "command", `{"command":"echo <a> && b"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := argument.Parse(c.text, c.first)
			require.NoError(t, err)
			assert.Equal(t, c.want, string(got))
		})
	}
}

func TestBrokenJSONIsExplained(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{`, `{"a": `, `{'x': 1}`, `{"x": 1,}`, `{}''`, `{"x": 1}{"x": 2}`, `{"x": NaN}`, `{"x": -Infinity}`} {
		_, err := argument.Parse(text, "command")
		require.ErrorContains(t, err, strings.TrimSpace(text))
	}
}

func TestLongBrokenJSONIsCutInTheMiddle(t *testing.T) {
	t.Parallel()
	text := `{"command": "` + strings.Repeat("日", 20_000)
	_, err := argument.Parse(text, "command")
	require.ErrorContains(t, err, "60013 bytes")
	assert.Less(t, len(err.Error()), 16<<10+200)
	assert.Greater(t, len(err.Error()), 16<<10)
}

func TestNestingIsBounded(t *testing.T) {
	t.Parallel()
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

	_, err := argument.Parse(`{"x": `+nested(99)+`}`, "")
	require.NoError(t, err)
	_, err = argument.Parse(`{"x": `+nested(100)+`}`, "")
	require.ErrorIs(t, err, argument.ErrTooDeep)

	_, err = argument.Parse(nested(99), "x")
	require.NoError(t, err)
	for _, levels := range []int{100, 5000} {
		_, err = argument.Parse(nested(levels), "x")
		require.ErrorIs(t, err, argument.ErrTooDeep)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a": 1}""`, `{"a": "\ud800"}`, "yes", "[[", `{"a": NaN}`, "\x00", "&a [*a]"} {
		f.Add(seed, "command")
	}
	f.Fuzz(func(t *testing.T, text, first string) {
		got, err := argument.Parse(text, first)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.True(t, json.Valid(got))
		require.LessOrEqual(t, orderedjson.Depth(got), argument.MaxDepth)
		var object map[string]any
		require.NoError(t, decode(got, &object))
	})
}

func decode(document []byte, into any) error {
	dec := json.NewDecoder(strings.NewReader(string(document)))
	dec.UseNumber()
	return dec.Decode(into)
}
