package match_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
)

// decode reads JSON as the recorded cases are read: numbers as they are written.
func decode(t *testing.T, text string) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	require.NoError(t, decoder.Decode(&value), text)
	return value
}

func TestValuesCompareAsJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, want, got string
		equal           bool
		opts            []match.Option
	}{
		{name: "members in any order", want: `{"a":1,"b":2}`, got: `{"b":2,"a":1}`, equal: true},
		{name: "lists in order", want: `[1,2]`, got: `[2,1]`},
		{name: "shorter list", want: `[1,2]`, got: `[1]`},
		{name: "null is absent", want: `{"a":null}`, got: `{}`, equal: true},
		{name: "absent is null", want: `{}`, got: `{"a":null}`, equal: true},
		{name: "a member too many", want: `{}`, got: `{"a":false}`},
		{name: "a member too few", want: `{"a":""}`, got: `{}`},
		{name: "null in a list is an item", want: `[null]`, got: `[]`},
		{name: "false is not null", want: `{"a":null}`, got: `{"a":false}`},
		{name: "text is not a number", want: `"1"`, got: `1`},
		{name: "true", want: `true`, got: `true`, equal: true},
		{name: "true is not false", want: `true`, got: `false`},
		{name: "an object is not a list", want: `{}`, got: `[]`},
		{name: "a list is not an object", want: `[1]`, got: `{"0":1}`},

		{name: "whole and decimal", want: `10`, got: `10.0`, equal: true},
		{name: "exponent", want: `1e2`, got: `100`, equal: true},
		{name: "within 1e-9", want: `0.1`, got: `0.1000000000001`, equal: true},
		{name: "beyond 1e-9", want: `0.1`, got: `0.10000001`},
		{name: "whole numbers to the last digit", want: `100000000000000000001`, got: `100000000000000000002`},
		{name: "big whole numbers", want: `1000000000000000000000000000000`, got: `1000000000000000000000000000000`, equal: true},
		{name: "big number as a float", want: `1000000000000000000000000000000`, got: `1e30`, equal: true},
		{name: "beyond float64, as written", want: `1e400`, got: `1e400`, equal: true},
		{name: "beyond float64, otherwise", want: `1e400`, got: `1e401`},
		{name: "minus zero", want: `0`, got: `-0`, equal: true},
		{name: "absolute tolerance", want: `1`, got: `1.4`, opts: []match.Option{match.Tolerance(0.5)}, equal: true},
		{name: "absolute tolerance exceeded", want: `1`, got: `1.6`, opts: []match.Option{match.Tolerance(0.5)}},
		{name: "a tolerance replaces 1e-9", want: `1e12`, got: `1000000000001`, opts: []match.Option{match.Tolerance(1e-6)}},
		{name: "relative tolerance", want: `200`, got: `210`, opts: []match.Option{match.RelativeTolerance(0.05)}, equal: true},
		{name: "relative tolerance exceeded", want: `200`, got: `211`, opts: []match.Option{match.RelativeTolerance(0.05)}},

		{name: "empty list is not absent", want: `{}`, got: `{"tools":[]}`},
		{name: "empty list as absent", want: `{}`, got: `{"tools":[]}`, opts: []match.Option{match.EmptyAsAbsent("tools")}, equal: true},
		{name: "absent as empty list", want: `{"tools":[]}`, got: `{"tools":null}`, opts: []match.Option{match.EmptyAsAbsent("tools")}, equal: true},
		{name: "empty object by pattern", want: `{}`, got: `{"additionalModelFields":{}}`, opts: []match.Option{match.EmptyAsAbsent("additional*Fields")}, equal: true},
		{name: "empty of another name", want: `{}`, got: `{"items":[]}`, opts: []match.Option{match.EmptyAsAbsent("tools")}},
		{name: "filled is not absent", want: `{}`, got: `{"tools":[1]}`, opts: []match.Option{match.EmptyAsAbsent("*")}},

		{name: "any order", want: `{"events":[1,{"a":2},3]}`, got: `{"events":[3,1,{"a":2}]}`, opts: []match.Option{match.AnyOrder("events")}, equal: true},
		{name: "any order counts repetitions", want: `{"events":[1,1,2]}`, got: `{"events":[1,2,2]}`, opts: []match.Option{match.AnyOrder("events")}},
		{name: "any order of another list", want: `{"calls":[1,2]}`, got: `{"calls":[2,1]}`, opts: []match.Option{match.AnyOrder("events")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			found := match.Equal(decode(t, test.want), decode(t, test.got), test.opts...)
			assert.Equal(t, test.equal, len(found) == 0, found.String())
		})
	}
}

func TestGoValuesAreComparedAsTheirJSON(t *testing.T) {
	t.Parallel()
	type usage struct {
		Input int `json:"input_tokens"`
		Total int `json:"total_tokens,omitempty"`
	}
	assert.Empty(t, match.Equal(decode(t, `{"input_tokens":3}`), usage{Input: 3}))
	assert.NotEmpty(t, match.Equal(decode(t, `{"input_tokens":3}`), usage{Input: 3, Total: 4}))
	assert.Empty(t, match.Equal(decode(t, `[1,2.5]`), []any{1, 2.5}))
	assert.Empty(t, match.Equal(decode(t, `{"a":[1]}`), json.RawMessage(`{"a":[1.0]}`)))
	assert.NotEmpty(t, match.Equal(nil, make(chan int)), "no JSON value")
	assert.NotEmpty(t, match.Equal(nil, []any{map[string]any{"a": make(chan int)}}), "no JSON value inside")
}

func TestNumbersThatAreNotFinite(t *testing.T) {
	t.Parallel()
	assert.Empty(t, match.Equal("NaN", math.NaN()))
	assert.Empty(t, match.Equal("Infinity", math.Inf(1)))
	assert.Empty(t, match.Equal([]any{"-Infinity"}, []any{math.Inf(-1)}))
	assert.NotEmpty(t, match.Equal("Infinity", math.Inf(-1)))
	assert.NotEmpty(t, match.Equal("NaN", 1.0))
	assert.NotEmpty(t, match.Equal(json.Number("1"), math.NaN()))
}

func TestDifferencesSayWhereAndWhat(t *testing.T) {
	t.Parallel()
	found := match.Equal(
		decode(t, `{"messages":[{"content":"a"},{"content":"b <x>"}],"odd name":1}`),
		decode(t, `{"messages":[{"content":"a"},{"content":"c"}],"more":true}`))
	require.Len(t, found, 3)
	assert.Equal(t, match.Difference{Path: "$.messages[1].content", Want: `"b <x>"`, Got: `"c"`}, found[0])
	assert.Equal(t, match.Difference{Path: "$.more", Want: "nothing", Got: "true"}, found[1])
	assert.Equal(t, match.Difference{Path: `$["odd name"]`, Want: "1", Got: "nothing"}, found[2])

	long := match.Equal("a", strings.Repeat("x", 10_000))
	assert.Less(t, len(long.String()), 1_000)
	assert.Contains(t, long.String(), "10002 bytes")

	var many, none []any
	for range 100 {
		many, none = append(many, "a"), append(none, "b")
	}
	assert.Contains(t, match.Equal(many, none).String(), "and 80 more")
}

func TestContains(t *testing.T) {
	t.Parallel()
	got := decode(t, `{"results":[{"content":"line 1: syntax error near"}]}`)
	assert.Empty(t, match.Contains([]string{"syntax error"}, got))
	assert.Len(t, match.Contains([]string{"syntax error", "elsewhere"}, got), 1)
	assert.NotEmpty(t, match.Contains([]string{"x"}, make(chan int)))
}

func TestMessagesOfAPool(t *testing.T) {
	t.Parallel()
	expect := decode(t, `{
		"message_pool": {
			"m1": {"id":"m1","role":"user","content":"q"},
			"m2": {"id":"m2","role":"assistant","content":"a"},
			"m3": {"id":"m3","role":"assistant","content":"a"},
			"m2#2": {"id":"m2","role":"assistant","content":"changed"}},
		"status": "success",
		"messages": ["m1","m2#2","m3"],
		"generates": [{"messages":["m1"],"tools":["add"]},{"messages":["m1","m2"],"tools":[]}]}`)
	const right = `{"status":"success",
		"messages":[{"id":"A","role":"user","content":"q"},{"id":"B","role":"assistant","content":"changed"},{"id":"C","role":"assistant","content":"a"}],
		"generates":[{"messages":[{"id":"A","role":"user","content":"q"}],"tools":["add"]},
			{"messages":[{"id":"A","role":"user","content":"q"},{"id":"B","role":"assistant","content":"a"}],"tools":[]}]}`
	for _, test := range []struct {
		name     string
		old, new string
		equal    bool
	}{
		{name: "as recorded", equal: true},
		{name: "another content", old: `"content":"changed"`, new: `"content":"b"`},
		{name: "a copy with a new id", old: `"id":"B","role":"assistant","content":"changed"`, new: `"id":"D","role":"assistant","content":"changed"`},
		{name: "two messages with one id", old: `"id":"C"`, new: `"id":"B"`},
		{name: "no id", old: `"id":"C",`, new: ``},
		{name: "a message too many", old: `"tools":["add"]`, new: `"tools":["add"],"x":1`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			resolved, err := match.Messages(expect)
			require.NoError(t, err)
			found := match.Equal(resolved, decode(t, strings.ReplaceAll(right, test.old, test.new)))
			assert.Equal(t, test.equal, len(found) == 0, found.String())
		})
	}
}

func TestMessagesLeaveAloneWhatIsNoPool(t *testing.T) {
	t.Parallel()
	for _, expect := range []string{`"text"`, `{"messages":["m1"]}`, `null`} {
		resolved, err := match.Messages(decode(t, expect))
		require.NoError(t, err)
		assert.Equal(t, decode(t, expect), resolved)
	}
	for _, broken := range []string{`{"message_pool":[]}`, `{"message_pool":{"m1":"text"}}`} {
		_, err := match.Messages(decode(t, broken))
		require.Error(t, err)
	}
}
