package orderedjson_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

func TestOrderAndDigitsSurvive(t *testing.T) {
	t.Parallel()
	for _, document := range []string{
		`null`, `true`, `false`, `"a<b>&c é 日 \" \\ \n"`, `[]`, `{}`,
		`1.0`, `-0`, `1e400`, `1E+2`, `123456789012345678901234567890`,
		`{"b":1,"a":[2,{"z":null,"y":"x"}],"":0}`,
	} {
		value, err := orderedjson.Decode([]byte(document))
		require.NoError(t, err)
		assert.Equal(t, document, string(orderedjson.Append(nil, value)))
	}
}

func TestTheLastOfEqualNamesCounts(t *testing.T) {
	t.Parallel()
	value, err := orderedjson.DecodeObject([]byte(`{"a":1,"b":2,"a":3}`))
	require.NoError(t, err)
	encoded, err := json.Marshal(value)
	require.NoError(t, err)
	assert.Equal(t, `{"a":3,"b":2}`, string(encoded))
}

func TestTidy(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		" {\"x\": 1,  \"y\":2}\n":   `{"x": 1,  "y":2}`,
		`{"x": 1, "x": 2, "y": 3}`:  `{"x":2,"y":3}`,
		`{"c": "\ud83c"}`:           `{"c":"` + "\ufffd" + `"}`,
		`{"c": "\u00e9"}`:           `{"c": "\u00e9"}`,
		`[{"a": {"b": 1, "b": 2}}]`: `[{"a":{"b":2}}]`,
	} {
		got, err := orderedjson.Tidy([]byte(document))
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
}

func TestWhatIsNoJSONIsRefused(t *testing.T) {
	t.Parallel()
	for _, document := range []string{"", "{", `{"a":1,}`, `{'a':1}`, "NaN", `{"a":Infinity}`, "1 2", "{}{}", "01", strings.Repeat("[", 20_000)} {
		_, err := orderedjson.Decode([]byte(document))
		require.Error(t, err, document)
	}
	_, err := orderedjson.DecodeObject([]byte("[1]"))
	require.ErrorContains(t, err, "array where an object is wanted")
}

func TestObject(t *testing.T) {
	t.Parallel()
	var o orderedjson.Object
	o.Set("a", json.Number("1"))
	o.Set("b", nil)
	o.Set("a", "again")
	o.Delete("b")
	o.Delete("none")
	o.Set("c", []any{true})
	assert.Equal(t, 2, o.Len())
	var names []string
	for name := range o.All() {
		names = append(names, name)
	}
	assert.Equal(t, []string{"a", "c"}, names)
	got, ok := o.Get("a")
	assert.True(t, ok)
	assert.Equal(t, "again", got)
	_, ok = o.Get("b")
	assert.False(t, ok)
	assert.Panics(t, func() { orderedjson.Append(nil, 5) })
}

// However many members there are, each is found, replaced in its place and removed.
func TestObjectsOfAnySize(t *testing.T) {
	t.Parallel()
	var o orderedjson.Object
	var want []string
	check := func() {
		t.Helper()
		var names []string
		for name, value := range o.All() {
			names = append(names, name)
			got, ok := o.Get(name)
			assert.True(t, ok)
			assert.Equal(t, value, got)
		}
		assert.Equal(t, want, names)
	}
	for i := range 30 {
		name := strconv.Itoa(i)
		o.Set(name, "")
		o.Set(name, name)
		want = append(want, name)
		check()
	}
	for len(want) > 0 {
		at := len(want) / 3
		o.Delete(want[at])
		_, ok := o.Get(want[at])
		assert.False(t, ok)
		want = slices.Delete(want, at, at+1)
		if len(want) > 0 {
			check()
		}
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]int{
		`1`: 0, `{}`: 1, `[[]]`: 2, `{"a":[{"b":[]}],"c":1}`: 4, `"[[["`: 0, `{"a\"[":"\\","b":[1]}`: 2,
	} {
		assert.Equal(t, want, orderedjson.Depth([]byte(document)), document)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"a":1,"a":[1e9,"\ud83c",null]}`, `[[],{}]`, `"\u0000"`, `{"a":1}{`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		value, err := orderedjson.Decode(document)
		require.Equal(t, json.Valid(document), err == nil)
		if err != nil {
			return
		}
		encoded := orderedjson.Append(nil, value)
		require.Equal(t, plain(t, document), plain(t, encoded))
		again, err := orderedjson.Decode(encoded)
		require.NoError(t, err)
		require.Equal(t, encoded, orderedjson.Append(nil, again))
	})
}

// plain reads a document as encoding/json does, with its numbers as written.
func plain(t *testing.T, document []byte) (value any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(document))
	dec.UseNumber()
	require.NoError(t, dec.Decode(&value))
	return value
}

func TestAMemberMayBeDeletedWhenItIsYielded(t *testing.T) {
	t.Parallel()
	object, err := orderedjson.DecodeObject([]byte(`{"a":null,"b":null,"c":1,"d":null}`))
	require.NoError(t, err)
	var seen string
	for name, value := range object.All() {
		seen += name
		if value == nil {
			object.Delete(name)
		}
	}
	assert.Equal(t, "abcd", seen)
	assert.JSONEq(t, `{"c":1}`, string(orderedjson.Append(nil, object)))
	made := new(orderedjson.Object).With("z", "x").With("a", true)
	assert.Equal(t, `{"z":"x","a":true}`, string(orderedjson.Append(nil, made)))
}
