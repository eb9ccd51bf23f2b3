package match_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
)

func TestMarkersInTexts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, want string
		fits       []string
		not        []string
	}{
		{
			name: "plain text", want: "a <b> c",
			fits: []string{"a <b> c"},
			not:  []string{"a b c", "a <b> c ", ""},
		},
		{
			name: "prose", want: "<prose>",
			fits: []string{"anything", "two\nlines"},
			not:  []string{"", " \n"},
		},
		{
			name: "prose with a key", want: "<prose:timeout>",
			fits: []string{"It took too long."},
			not:  []string{""},
		},
		{
			name: "literal around", want: "see picture\n<prose>",
			fits: []string{"see picture\nbelow"},
			not:  []string{"see picture\n", "see picture below", "picture\nbelow", "\nsee picture\nbelow"},
		},
		{
			name: "literals in order", want: "<prose>\n\n{\"city\":\n\n<prose>",
			fits: []string{"Not JSON:\n\n{\"city\":\n\nends early"},
			not:  []string{"Not JSON:\n\nends early\n\n{\"city\":", "\n\n{\"city\":\n\nends early", "Not JSON:\n\n{\"city\":\n\n"},
		},
		{
			name: "the end is literal", want: "<prose>x",
			fits: []string{"axx", "aaxbx"},
			not:  []string{"x", "ax ", "axb"},
		},
		{
			name: "end and middle do not overlap", want: "<prose>ab<prose>ab",
			fits: []string{"1ab2ab", "1ab2ab3ab"},
			not:  []string{"1abab", "1ab"},
		},
		{
			name: "neighbours", want: `<prose:edited {"path": "/a"}><prose:snippet-header {"path": "/a"}>     1` + "\tx",
			fits: []string{"Edited /a.\nThe lines of /a:\n     1\tx"},
			not:  []string{"Edited /a.\n     1\tx", "     1\tx", "Edited /a, /a     1\ty"},
		},
		{
			name: "a value", want: `<prose:directory-empty {"path": "/memories"}>`,
			fits: []string{"/memories is empty", "Nothing in '/memories'."},
			not:  []string{"the directory is empty", "/memory is empty"},
		},
		{
			name: "values in any order", want: `<prose:os-error {"reason": "Is a directory", "filename": "/some/path"}>`,
			fits: []string{"/some/path: Is a directory", "Is a directory (/some/path)"},
			not:  []string{"/some/path: is a directory", "Is a directory"},
		},
		{
			name: "a value with quotes and brackets", want: `<prose:arguments-not-json {"raw": "{\"x\": 1}{\"x\": 2}>"}>`,
			fits: []string{`No JSON: {"x": 1}{"x": 2}>`},
			not:  []string{`No JSON: {"x": 1}{"x": 3}>`, `<prose:arguments-not-json {"raw": "x"}>`},
		},
		{
			name: "numbers in any grouping", want: `<prose:limit-exceeded {"kind": "token", "limit": "1234567"}>`,
			fits: []string{
				"token limit 1234567 exceeded", "1,234,567 is the token limit", "token: 1_234_567.", "token 1 234 567",
				"token 1.234.567", "token 1'234'567", "token 1\u202f234\u202f567", "token limit of 1,234,567.",
			},
			not: []string{
				"token limit 123456", "token limit 12345678", "token limit 91234567", "token limit 1,234,568",
				"token limit 0,1,234,567", "token limit 1,234,567,000", "token limit 1234567.5", "kind limit 1234567",
			},
		},
		{
			name: "a small number", want: `<prose:invalid-arguments {"count": 1}>`,
			fits: []string{"1 violation", "violations: 1", "found 1.", "(1)", "1, alas"},
			not:  []string{"one violation", "10 violations", "21 violations", "1.5 violations", "0.1 violations", "1,000"},
		},
		{
			name: "a fraction", want: `<prose:limit-exceeded {"limit": "2.5"}>`,
			fits: []string{"limit 2.5 s", "2.50"},
			not:  []string{"limit 2 s", "limit 12.5 s", "limit 2.55 s", "limit 2,5 s"},
		},
		{
			name: "a whole number with a fraction of zeros", want: `<prose:limit-exceeded {"limit": 2.0}>`,
			fits: []string{"limit 2", "limit 2.0", "2.00 s"},
			not:  []string{"limit 2.01", "limit 20"},
		},
		{
			name: "a negative number", want: `<prose:insert-line-range {"insert_line": "-1", "allowed": "[0, 7]"}>`,
			fits: []string{"-1 is not in [0, 7]", "−1 is not in [0, 7]"},
			not:  []string{"1 is not in [0, 7]", "-1 is not between 0 and 7", "-10 is not in [0, 7]"},
		},
		{
			name: "a name that ends with a number", want: `<prose:dispatched {"handle": "AGENT-1"}>`,
			fits: []string{"AGENT-1 runs", "not AGENT-10 but AGENT-1"},
			not:  []string{"AGENT-10 runs", "AGENT-2 runs"},
		},
		{
			name: "lists, flags and null", want: `<prose:x {"names": ["one", "two"], "on": true, "off": false, "none": null, "in": {"deep": 3}, "empty": ""}>`,
			fits: []string{"two one true false 3"},
			not:  []string{"two true false 3", "two one false 3", "two one true 3", "two one true false"},
		},
		{
			name: "an exponent is text", want: `<prose:x {"n": 1e3}>`,
			fits: []string{"it is 1e3"},
			not:  []string{"it is 1000"},
		},
		{
			name: "no marker at all", want: "<prose:Key {json}> <prose:> <prose:a b> <prose",
			fits: []string{"<prose:Key {json}> <prose:> <prose:a b> <prose"},
			not:  []string{"x <prose:> <prose:a b> <prose"},
		},
		{
			name: "numbered id in a text", want: "get_weather_<id1>",
			fits: []string{"get_weather_a", "get_weather_42"},
			not:  []string{"get_weather_", "get_wind_1"},
		},
		{
			name: "one id twice in a text", want: "<id1>-<id1>",
			fits: []string{"a-a"},
			not:  []string{"a-b"},
		},
		{name: "id", want: "<id>", fits: []string{"x"}, not: []string{""}},
		{name: "id with a prefix", want: "<id:call_>", fits: []string{"call_1"}, not: []string{"call_", "msg_1", ""}},
		{name: "new id", want: "<new-id>", fits: []string{"x"}, not: []string{"", "old"}},
		{name: "new", want: "<new>", fits: []string{"x"}, not: []string{"", "old"}},
		{name: "new id of a role", want: "<new:tool>", fits: []string{"x"}, not: []string{"", "old"}},
		{name: "time", want: "<time>", fits: []string{"2026-01-01"}, not: []string{""}},
		{name: "text", want: "<text>", fits: []string{"x"}, not: []string{"", " "}},
		{name: "reason", want: "<reason>", fits: []string{"x"}, not: []string{""}},
		{name: "empty", want: "<empty>", fits: []string{""}, not: []string{"x"}},
		{name: "not a marker inside a text", want: "a <id> b", fits: []string{"a <id> b"}, not: []string{"a x b"}},
		{name: "the sandbox's directory is no marker", want: "<workdir>/f", fits: []string{"<workdir>/f"}, not: []string{"/tmp/f"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, text := range test.fits {
				assert.Empty(t, match.Equal(test.want, text, match.KnownIDs("old")), "should fit")
			}
			for _, text := range test.not {
				assert.NotEmpty(t, match.Equal(test.want, text, match.KnownIDs("old")), "%q should not fit", text)
			}
		})
	}
}

func TestMarkersForOtherValuesThanTexts(t *testing.T) {
	t.Parallel()
	assert.Empty(t, match.Equal("<time>", json.Number("1700000000")))
	assert.NotEmpty(t, match.Equal("<time>", nil))
	assert.NotEmpty(t, match.Equal("<time>", true))
	assert.Empty(t, match.Equal("<empty>", nil))
	for _, marker := range []string{"<prose>", "<id>", "<id1>", "<id:x>", "<new-id>", "<new:tool>", "<text>", "<message:m1>"} {
		assert.NotEmpty(t, match.Equal(marker, json.Number("1")), marker)
		assert.NotEmpty(t, match.Equal(marker, nil), marker)
		assert.NotEmpty(t, match.Equal(marker, []any{"x"}), marker)
	}
}

func TestAnIDIsTheSameThroughoutACase(t *testing.T) {
	t.Parallel()
	matcher := match.New()
	assert.Empty(t, matcher.Equal(decode(t, `{"id":"<id1>","next":"f_<id2>"}`), decode(t, `{"id":"A","next":"f_B"}`)))
	assert.Empty(t, matcher.Equal("<id1>", "A"))
	assert.Empty(t, matcher.Equal("<id2>", "B"))
	assert.NotEmpty(t, matcher.Equal("<id2>", "A"))
	assert.NotEmpty(t, matcher.Equal("f_<id1>", "f_B"))
	assert.Empty(t, matcher.Equal("<id3>", "A"), "two markers may stand for one id")
	assert.Empty(t, match.New().Equal("<id1>", "B"), "another case has other ids")
}

func TestATextThatDoesNotMatchBindsNothing(t *testing.T) {
	t.Parallel()
	matcher := match.New()
	assert.NotEmpty(t, matcher.Equal("<id1> end", "A stop"))
	assert.Empty(t, matcher.Equal("<id1> end", "B end"))
	assert.NotEmpty(t, matcher.Equal(decode(t, `{"events":["<id2>x","y"]}`), decode(t, `{"events":["z","Cx"]}`), match.AnyOrder("events")))
}

func TestIDsBindInListsOfAnyOrder(t *testing.T) {
	t.Parallel()
	want := decode(t, `{"events":[{"id":"<id1>","n":1},{"id":"<id2>","n":2}],"last":"<id2>"}`)
	right := decode(t, `{"events":[{"id":"B","n":2},{"id":"A","n":1}],"last":"B"}`)
	wrong := decode(t, `{"events":[{"id":"B","n":2},{"id":"A","n":1}],"last":"A"}`)
	assert.Empty(t, match.Equal(want, right, match.AnyOrder("events")))
	assert.NotEmpty(t, match.Equal(want, wrong, match.AnyOrder("events")))
}

func TestLinesInAnyOrder(t *testing.T) {
	t.Parallel()
	const listing = `<prose:directory-header {"path": "/d"}>/d` + "\n/d/a\n/d/b\n"
	for _, test := range []struct {
		name, want, got string
		equal           bool
	}{
		{name: "the same", want: "a\nb\n", got: "a\nb\n", equal: true},
		{name: "another order", want: "a\nb\n", got: "b\na\n", equal: true},
		{name: "the last line has no break", want: "a\nb", got: "b\na", equal: true},
		{name: "another line", want: "a\nb", got: "a\nc"},
		{name: "a line too many", want: "a\nb", got: "a\nb\nb"},
		{name: "a line too few", want: "a\nb\nb", got: "a\nb"},
		{name: "after a header", want: listing, got: "Files in /d:\n/d/b\n/d\n/d/a\n", equal: true},
		{name: "no header", want: listing, got: "/d/b\n/d\n/d/a\n"},
		{name: "a header without its value", want: listing, got: "Files:\n/d/b\n/d\n/d/a\n"},
		{name: "a marker further down is not supported", want: "a\n<prose>\nb", got: "a\nx\nb"},
		{name: "one line is compared as ever", want: "a <prose>", got: "a x", equal: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			found := match.Equal(test.want, test.got, match.AnyLines())
			assert.Equal(t, test.equal, len(found) == 0, found.String())
		})
	}
	assert.NotEmpty(t, match.Equal("a\nb\n", "b\na\n"), "only when asked for")
}

func TestLongTexts(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("日", 500)
	sum := sha256.Sum256([]byte(text))
	hash := hex.EncodeToString(sum[:])
	head, tail := strings.Repeat("日", 120), strings.Repeat("日", 120)
	long := func(members string) any { return decode(t, `{"$long": {`+members+`}}`) }
	for _, test := range []struct {
		name  string
		want  any
		got   any
		equal bool
	}{
		{name: "runs", want: long(`"runs": [["日", 500]]`), got: text, equal: true},
		{name: "runs, one too few", want: long(`"runs": [["日", 501]]`), got: text},
		{name: "runs and sizes", want: long(`"runs": [["日", 500]], "bytes": 1500, "chars": 500, "sha256": "` + hash + `"`), got: text, equal: true},
		{name: "bytes", want: long(`"runs": [["日", 500]], "bytes": 500`), got: text},
		{name: "chars", want: long(`"runs": [["日", 500]], "chars": 1500`), got: text},
		{name: "hash", want: long(`"runs": [["日", 500]], "sha256": "00"`), got: text},
		{name: "runs with markers", want: long(`"runs": [["<prose:output-truncated {\"tool\": \"big\"}><START>\n", 1], ["日", 500], ["\n<END>", 1]]`), got: "\nThe output of big is cut.\n<START>\n" + text + "\n<END>", equal: true},
		{name: "runs with markers, other text", want: long(`"runs": [["<prose:output-truncated {\"tool\": \"big\"}><START>\n", 1], ["日", 500], ["\n<END>", 1]]`), got: "\nThe output is cut.\n<START>\n" + text + "\n<END>"},
		{name: "a marker over several runs", want: long(`"runs": [["<prose:x {\"raw\": \"", 1], ["a", 100], ["\", \"size\": 40013}>", 1]]`), got: "No JSON (40,013 bytes): " + strings.Repeat("a", 100), equal: true},
		{name: "a marker over several runs, cut short", want: long(`"runs": [["<prose:x {\"raw\": \"", 1], ["a", 100], ["\", \"size\": 40013}>", 1]]`), got: "No JSON (40,013 bytes): " + strings.Repeat("a", 99)},
		{name: "ends", want: long(`"head": "` + head + `", "tail": "` + tail + `", "chars": 500`), got: text, equal: true},
		{name: "ends of another length", want: long(`"head": "` + head + `", "tail": "` + tail + `", "chars": 499`), got: text},
		{name: "another head", want: long(`"head": "x", "tail": "` + tail + `"`), got: text},
		{name: "another tail", want: long(`"head": "` + head + `", "tail": "x"`), got: text},
		{name: "ends with markers", want: long(`"head": "<prose:a>\nxx", "tail": "yy <prose:b>"`), got: "First\nxx … yy last", equal: true},
		{name: "a head that cuts a marker", want: long(`"head": "xx <prose:a {\"raw\": \"ab", "tail": "yz\"}> end"`), got: "xx whatever it says end", equal: true},
		{name: "a head that cuts a marker, other text before", want: long(`"head": "xx <prose:a {\"raw\": \"ab", "tail": "yz\"}> end"`), got: "xy whatever it says end"},
		{name: "hash alone", want: long(`"sha256": "` + hash + `"`), got: text, equal: true},
		{name: "nothing known", want: long(`"bytes": 1500`), got: text},
		{name: "no text", want: long(`"runs": [["a", 1]]`), got: json.Number("1")},
		{name: "sizes that are none", want: long(`"runs": [["a", 1]], "bytes": "1"`), got: "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			found := match.Equal(test.want, test.got)
			assert.Equal(t, test.equal, len(found) == 0, found.String())
		})
	}
	assert.Empty(t, match.Equal(decode(t, `{"$long": {"runs": [["a", 1]]}, "other": 1}`), decode(t, `{"$long": {"runs": [["a", 1]]}, "other": 1}`)), "an object that only looks like one")
}
