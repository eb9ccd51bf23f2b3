package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

var names = []string{"model", "stream", "max_tokens"}

// find returns the wanted values of a document as text; empty where they are not there.
func find(doc string) ([]string, error) {
	found := make([]jsonscan.Span, len(names))
	err := jsonscan.Object([]byte(doc), names, found)
	values := make([]string, len(names))
	for i, span := range found {
		values[i] = string(span.Of([]byte(doc)))
	}
	return values, err
}

func TestValuesAreFoundWhereTheyLie(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string][]string{
		`{}`:                                    {"", "", ""},
		" \n{ }\t":                              {"", "", ""},
		`{"model":"m"}`:                         {`"m"`, "", ""},
		`{"a":1,"model" : "m" , "stream":true}`: {`"m"`, "true", ""},
		`{"messages":[{"model":"inner","x":[1,{"stream":false}]}],"max_tokens":1e3}`: {"", "", "1e3"},
		`{"a":"\"model\":\"no\"","model":"a\\"}`:                                     {`"a\\"`, "", ""},
		`{"\u006dodel":"\u0061","str\u0065am":null}`:                                 {`"\u0061"`, "null", ""},
		`{"Model":"case","model ":"blank"}`:                                          {"", "", ""},
		`{"model":{"a":"}"},"stream":["]"]}`:                                         {`{"a":"}"}`, `["]"]`, ""},
		`{"x":"` + strings.Repeat(`\"a`, 40) + `","model":"m"}`:                      {`"m"`, "", ""},
		`{"x":"` + strings.Repeat(`\\`, 40) + `","model":"m"}`:                       {`"m"`, "", ""},
	} {
		got, err := find(doc)
		require.NoError(t, err, doc)
		assert.Equal(t, want, got, doc)
	}
}

func TestWhatIsNoObjectIsRefused(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		"", " ", "null", `"model"`, `[{"model":"m"}]`, `{`, `{"model"`, `{"model":`, `{"model":"m"`, `{"model":"m",}`, `{"model":"m"}x`, `{"model":"m"}{}`,
		`{"model":"m`, `{"model":"m\"}`, `{model:"m"}`, `{"model" "m"}`, `{"model":"m" "stream":true}`, `{"model":,"stream":true}`, `{"x":[1,2}`, "\uFEFF{}", `{"\u00zz":1}`,
	} {
		_, err := find(doc)
		require.ErrorIs(t, err, jsonscan.ErrNotObject, doc)
	}
}

func TestAWantedMemberThatIsThereTwiceIsRefused(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{`{"model":"a","model":"b"}`, `{"model":"a","x":1,"mod\u0065l":"b"}`} {
		_, err := find(doc)
		duplicate := &jsonscan.DuplicateError{}
		require.ErrorAs(t, err, &duplicate, doc)
		assert.Equal(t, "model", duplicate.Name)
	}
	_, err := find(`{"x":1,"x":2}`)
	require.NoError(t, err, "what nobody asks for may be there as often as it likes")
}

func TestValuesAreRead(t *testing.T) {
	t.Parallel()
	text, ok := jsonscan.Text([]byte(`"a\u00e9\n"`))
	assert.Equal(t, "aé\n", text)
	assert.True(t, ok)
	for _, value := range []string{"", `"`, "1", `"a`, `{"a":1}`, "null"} {
		_, ok := jsonscan.Text([]byte(value))
		assert.False(t, ok, value)
	}
	n, ok := jsonscan.Int([]byte("-12"))
	assert.Equal(t, int64(-12), n)
	assert.True(t, ok)
	for _, value := range []string{"", "1.5", `"1"`, "null", "99999999999999999999"} {
		_, ok := jsonscan.Int([]byte(value))
		assert.False(t, ok, value)
	}
}

// members reads a JSON object with encoding/json: its members in order, with their values as they are written.
func members(doc []byte) (keys []string, values []json.RawMessage, ok bool) {
	if !json.Valid(doc) {
		return nil, nil, false
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, nil, false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, nil, false
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil, nil, false
		}
		keys, values = append(keys, key.(string)), append(values, value)
	}
	return keys, values, true
}

// Whatever encoding/json takes for an object, the scan reads alike; what it does not take never makes the scan panic or
// leave the document.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{
		`{"model":"a","stream":true,"max_tokens":12}`, `{"messages":[{"content":"a \"model\": b\\"}],"model":"x"}`, `{"model":"a","model":"b"}`,
		`{"mod\u0065l":"a","x":{"y":[[],{}]}}`, `{"a":1.5e-3,"stream":null} `, `[]`, `{"model":tru}`, `{"x":"\\\"","model":""}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		found := make([]jsonscan.Span, len(names))
		err := jsonscan.Object(doc, names, found)
		if errors.Is(err, jsonscan.ErrTooDeep) {
			return
		}
		keys, values, ok := members(doc)
		if !ok {
			for _, span := range found {
				if span.Start < 0 || span.End < span.Start || span.End > len(doc) {
					t.Fatalf("%q: %v", doc, span)
				}
			}
			return
		}
		want := make([][]byte, len(names))
		for i, key := range keys {
			for j, name := range names {
				if key != name {
					continue
				}
				if want[j] != nil {
					if _, duplicate := err.(*jsonscan.DuplicateError); !duplicate { //nolint:errorlint // it is returned as it is
						t.Fatalf("%q has %q twice: %v", doc, name, err)
					}
					return
				}
				want[j] = values[i]
			}
		}
		if err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		for i, span := range found {
			if !bytes.Equal(span.Of(doc), want[i]) {
				t.Fatalf("%q: %s is %q, not %q", doc, names[i], span.Of(doc), want[i])
			}
		}
	})
}

func BenchmarkObject(b *testing.B) {
	const size = 100_000
	for name, piece := range map[string]string{
		"prose": "The quick brown fox jumps over the lazy dog, and then it sleeps. ",
		"code":  "\tif err != nil {\n\t\treturn fmt.Errorf(\"read %q: %w\", name, err)\n\t}\n",
		"json":  `{"id":17,"name":"x","ok":true,"tags":["a","b"]},`,
	} {
		text, err := json.Marshal(strings.Repeat(piece, size/len(piece)))
		require.NoError(b, err)
		doc := []byte(`{"model":"openai/gpt-4o","messages":[{"role":"user","content":` + string(text) + `}],"stream":true,"max_tokens":100}`)
		found := make([]jsonscan.Span, len(names))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				if err := jsonscan.Object(doc, names, found); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The end of a text is where reading byte by byte finds it, wherever its backslashes lie in a block.
func TestTextsEndWhereTheirQuoteIsNotEscaped(t *testing.T) {
	t.Parallel()
	for before := range 130 {
		for slashes := range 70 {
			doc := `{"x":"\"` + strings.Repeat("a", before) + strings.Repeat(`\`, slashes) + `","model":"m","y":"z"}`
			got, err := find(doc)
			if slashes%2 == 0 {
				require.NoError(t, err, doc)
				require.Equal(t, `"m"`, got[0], doc)
			} else {
				require.Error(t, err, doc)
			}
		}
	}
}

// A decoder of the document is recursive, so its depth has a bound.
func TestWhatIsNestedTooDeeplyIsRefused(t *testing.T) {
	t.Parallel()
	nested := func(depth int, open, closed string) []byte {
		return []byte(`{"a":1,"b":` + strings.Repeat(open, depth-1) + `1` + strings.Repeat(closed, depth-1) + `}`)
	}
	found := make([]jsonscan.Span, 1)
	for _, form := range [][2]string{{"[", "]"}, {`{"x":`, "}"}, {`[{"x":[`, "]}]"}} {
		each := strings.Count(form[0], "[") + strings.Count(form[0], "{")
		require.NoError(t, jsonscan.Object(nested((jsonscan.MaxDepth-1)/each+1, form[0], form[1]), []string{"a"}, found))
		err := jsonscan.Object(nested(jsonscan.MaxDepth/each+2, form[0], form[1]), []string{"a"}, found)
		require.ErrorIs(t, err, jsonscan.ErrTooDeep)
	}
	wide := []byte(`{"a":[` + strings.Repeat("[],", 10_000) + `[]]}`)
	require.NoError(t, jsonscan.Object(wide, []string{"a"}, found), "side by side is not deep")
	quoted := []byte(`{"a":"` + strings.Repeat("[", 10_000) + `"}`)
	require.NoError(t, jsonscan.Object(quoted, []string{"a"}, found), "nor is a text")
}

// Text reads what encoding/json does, and nothing else.
func FuzzText(f *testing.F) {
	for _, value := range []string{`"a"`, `""`, `"`, `"a" `, `"a"b"`, `"\u00e9\n"`, "\"\x01\"", "\"\xff\"", `"é"`, `"a\"`, `1`, `null`, ` "a"`} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		var want string
		isText := len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &want) == nil
		got, ok := jsonscan.Text(value)
		assert.Equal(t, isText, ok)
		if ok {
			assert.Equal(t, want, got)
		}
	})
}
