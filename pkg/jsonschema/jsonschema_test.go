package jsonschema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/jsonschema"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// found is a violation without its message.
type found struct{ keyword, at string }

func check(t *testing.T, schema, document string) []found {
	t.Helper()
	s, err := jsonschema.Compile(json.RawMessage(schema))
	require.NoError(t, err)
	violations, err := s.Check(json.RawMessage(document))
	require.NoError(t, err)
	out := []found{}
	for _, v := range violations {
		assert.NotEmpty(t, v.Message)
		out = append(out, found{v.Keyword, v.At})
	}
	return out
}

func TestEveryViolationIsReported(t *testing.T) {
	t.Parallel()
	const twoIntegers = `{"type":"object","properties":{"x":{"type":"integer"},"y":{"type":"integer"}},"required":["x","y"],"additionalProperties":false}`
	for _, c := range []struct {
		name, schema, document string
		want                   []found
	}{
		{"valid", twoIntegers, `{"x":1,"y":1.0}`, []found{}},
		{"a big integer", twoIntegers, `{"x":1,"y":1000000000000000000000000000000}`, []found{}},
		{"a boolean is no integer", twoIntegers, `{"x":1,"y":true}`, []found{{"type", "/y"}}},
		{"wrong types and a stranger", twoIntegers, `{"x":"1","y":null,"z":3}`, []found{{"additionalProperties", ""}, {"type", "/x"}, {"type", "/y"}}},
		{"each missing member counts", twoIntegers, `{}`, []found{{"required", ""}, {"required", ""}}},
		{"strangers count once", twoIntegers, `{"x":1,"y":2,"a":3,"b":4}`, []found{{"additionalProperties", ""}}},
		{"type and enum", `{"type":"string","enum":["a","b"]}`, `null`, []found{{"enum", ""}, {"type", ""}}},
		{"type and a bound", `{"type":"string","minimum":3}`, `1`, []found{{"minimum", ""}, {"type", ""}}},
		{"pattern and length", `{"pattern":"^a","minLength":2}`, `"b"`, []found{{"minLength", ""}, {"pattern", ""}}},
		{"1.0 is the integer 1 of an enum", `{"type":"integer","enum":[1,2]}`, `1.0`, []found{}},
		{"alternatives are one violation", `{"properties":{"v":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}`, `{"v":"1"}`, []found{{"anyOf", "/v"}}},
		{"all of several are many", `{"allOf":[{"type":"integer"},{"enum":[1]}]}`, `"x"`, []found{{"enum", ""}, {"type", ""}}},
		{"inside lists and maps", `{"properties":{"l":{"items":{"type":"integer"}},"m":{"additionalProperties":{"type":"integer"}}}}`, `{"l":[1,"2"],"m":{"a/b":"c"}}`, []found{{"type", "/l/1"}, {"type", "/m/a~1b"}}},
		{"references inside the schema", `{"definitions":{"n":{"type":"integer","enum":[1]}},"properties":{"v":{"$ref":"#/definitions/n"}}}`, `{"v":"x"}`, []found{{"enum", "/v"}, {"type", "/v"}}},
		{"format asserts nothing", `{"type":"string","format":"date-time"}`, `"not a date"`, []found{}},
		{"a property named like a keyword", `{"properties":{"format":{"type":"integer"},"type":{"type":"string","enum":["a"]}},"required":["format"]}`, `{"type":"b"}`, []found{{"enum", "/type"}, {"required", ""}}},
		{"several types", `{"type":["string","null"]}`, `5`, []found{{"type", ""}}},
		{"a later draft where the schema names it", `{"$schema":"https://json-schema.org/draft/2020-12/schema","prefixItems":[{"type":"integer"}]}`, `["a"]`, []found{{"type", "/0"}}},
		{"nothing is allowed", `{"properties":{"x":false}}`, `{"x":1}`, []found{{"", "/x"}}},
		{"numbers beyond a float", `{"type":"number"}`, `1e400`, []found{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			assert.ElementsMatch(t, c.want, check(t, c.schema, c.document))
		})
	}
}

func TestMessagesNameValueAndRule(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.Compile(json.RawMessage(`{"properties":{"n":{"type":"integer"},"o":{"anyOf":[{"type":"integer"},{"type":"null"}]}},"required":["k"],"additionalProperties":false}`))
	require.NoError(t, err)
	violations, err := schema.Check(json.RawMessage(`{"n":"five","o":"x","b":1,"a":2}`))
	require.NoError(t, err)
	var lines []string
	for _, v := range violations {
		lines = append(lines, v.String())
	}
	assert.Equal(t, []string{
		"not expected here: 'a', 'b'",
		"the member 'k' is missing",
		"/n: got string, want integer",
		"/o: none of the alternatives fits: got string, want integer; got string, want null",
	}, lines)
}

func TestABoundIsSaidInWords(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		`{"exclusiveMinimum":0}`:  "is -3.5; want more than 0",
		`{"minimum":1}`:           "is -3.5; want at least 1",
		`{"maximum":-4}`:          "is -3.5; want at most -4",
		`{"exclusiveMaximum":-4}`: "is -3.5; want less than -4",
	} {
		schema, err := jsonschema.Compile(json.RawMessage(rule))
		require.NoError(t, err)
		violations, err := schema.Check(json.RawMessage(`-3.5`))
		require.NoError(t, err)
		require.Len(t, violations, 1)
		assert.Equal(t, want, violations[0].Message)
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for name, schema := range map[string]string{
		"no JSON":                 `{`,
		"more than one value":     `{} {}`,
		"an unknown type":         `{"type":"text"}`,
		"keywords of wrong kinds": `{"allOf":5}`,
		"required as a boolean":   `{"properties":{"a":{"type":"string","required":true}}}`,
		"a file":                  `{"$ref":"file:///etc/hostname"}`,
		"a page":                  `{"$ref":"http://127.0.0.1/schema.json"}`,
		"a relative file":         `{"$ref":"other.json"}`,
		"an unknown draft":        `{"$schema":"http://127.0.0.1/draft"}`,
		"a look-ahead":            `{"pattern":"^(?=a)"}`,
		"a huge number":           `{"minimum":1e99999}`,
		"deep nesting":            strings.Repeat(`{"not":`, 100) + `{}` + strings.Repeat(`}`, 100),
		"a huge text":             `{"description":"` + strings.Repeat("x", jsonschema.MaxSchemaBytes) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := jsonschema.Compile(json.RawMessage(schema))
			require.Error(t, err)
		})
	}
}

// What is wrong is said in the words of the schema, at the places that its author wrote.
func TestWhatIsWrongWithASchema(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type":"objekt"}`:                    "at /type: none of the alternatives fits: value must be one of 'array', 'boolean', 'integer', 'null', 'number', 'object', 'string'; got string, want array",
		`7`:                                    "at the root: got number, want boolean or object",
		`{"$ref":"http://127.0.0.1/a.json"}`:   `"http://127.0.0.1/a.json" leads out of the schema; put what it refers to under definitions`,
		`{"$ref":"#/definitions/a"}`:           "there is no #/definitions/a to refer to",
		`{"$schema":"http://127.0.0.1/draft"}`: `"http://127.0.0.1/draft" leads out of the schema`,
		`{"$ref":"#"}`:                         "the schema at the root leads back to itself",
		`{"allOf":[{"$ref":"#"}]}`:             "the schema at the root leads back to itself",
		`{"dependencies":{"a":{"$ref":"#"}}}`:  "the schema at the root leads back to itself",
		`{"properties":{"n":{"$ref":"#/properties/n","description":"x"}}}`:                                                               "the schema at /properties/n leads back to itself",
		`{"definitions":{"a":{"$ref":"#/definitions/b"},"b":{"anyOf":[{"$ref":"#/definitions/a"}]}},"items":{"$ref":"#/definitions/a"}}`: "the schema at /definitions/a leads back to itself",
	} {
		_, err := jsonschema.Compile(json.RawMessage(schema))
		require.Error(t, err, schema)
		assert.Contains(t, err.Error(), want)
		for _, internal := range []string{"schema:", "URLLoader", "metaschema", "draft-07"} {
			assert.NotContains(t, err.Error(), internal)
		}
	}
}

func TestASchemaMayNestInItself(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.Compile(json.RawMessage(
		`{"allOf":[{"properties":{"child":{"$ref":"#"},"many":{"type":"array","items":{"anyOf":[{"$ref":"#"},{"type":"null"}]}}}}],"required":["n"]}`))
	require.NoError(t, err)
	faults, err := schema.Check(json.RawMessage(`{"n":1,"child":{"n":2,"many":[null,{"n":3,"child":{}}]}}`))
	require.NoError(t, err)
	require.Len(t, faults, 1)
	assert.Contains(t, faults[0].String(), "the member 'n' is missing")
}

func TestCheckRefusesWhatItCannotCheck(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.Compile(json.RawMessage(`{"additionalProperties":{"minimum":1}}`))
	require.NoError(t, err)

	_, err = schema.Check(json.RawMessage(`{`))
	require.Error(t, err)
	_, err = schema.Check(json.RawMessage(`{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`))
	require.ErrorIs(t, err, jsonschema.ErrTooDeep)
	for _, number := range []string{"1e99999", "1E+1000", "[-1e-5000]", strings.Repeat("9", 2000)} {
		_, err = schema.Check(json.RawMessage(`{"a":` + number + `}`))
		require.ErrorIs(t, err, jsonschema.ErrNumber, number)
	}
	violations, err := schema.Check(json.RawMessage(`{"a":1e0999,"b":-1e-400}`))
	require.NoError(t, err)
	assert.Len(t, violations, 1)
}

func TestTextIsKept(t *testing.T) {
	t.Parallel()
	const text = ` {"type":"object", "properties":{"b":{"enum":[1]},"a":{}}} `
	schema, err := jsonschema.Compile(json.RawMessage(text))
	require.NoError(t, err)
	assert.Equal(t, text, string(schema.Text()))
}

func TestCache(t *testing.T) {
	t.Parallel()
	var cache jsonschema.Cache
	first, err := cache.Compile(json.RawMessage(`{"type":"object"}`))
	require.NoError(t, err)
	again, err := cache.Compile(json.RawMessage(`{"type":"object"}`))
	require.NoError(t, err)
	assert.Same(t, first, again)
	_, err = cache.Compile(json.RawMessage(`{`))
	require.Error(t, err)

	var all sync.WaitGroup
	for n := range 40 { // more than the cache holds
		all.Go(func() {
			text := fmt.Sprintf(`{"description":"%s","maximum":%d}`, strings.Repeat("x", 200<<10), n)
			schema, err := cache.Compile(json.RawMessage(text))
			if assert.NoError(t, err) {
				violations, err := schema.Check(json.RawMessage(fmt.Sprint(n + 1)))
				assert.NoError(t, err)
				assert.Len(t, violations, 1)
			}
		})
	}
	waittest.Return(t, all.Wait, "every check to return")
	dropped, err := cache.Compile(json.RawMessage(`{"type":"object"}`))
	require.NoError(t, err)
	assert.NotSame(t, first, dropped, "the least recently used is dropped")
}

func FuzzCheck(f *testing.F) {
	f.Add(`{"type":"object","properties":{"x":{"type":"integer","minimum":1,"enum":[1]}},"required":["x"]}`, `{"x":"1"}`)
	f.Add(`{"anyOf":[{"$ref":"#"},{"items":{"not":{}}}],"$id":"a"}`, `[1e999]`)
	f.Add(`{"patternProperties":{"^a":{"format":"uri"}},"if":{},"then":{"const":1}}`, `{"a":"b"}`)
	f.Fuzz(func(t *testing.T, schema, document string) {
		s, err := jsonschema.Compile(json.RawMessage(schema))
		if err != nil {
			return
		}
		_, _ = s.Check(json.RawMessage(document))
	})
}

func TestManyFaultsOfAlternatives(t *testing.T) {
	t.Parallel()
	s, err := jsonschema.Compile(json.RawMessage(`{"anyOf":[{"type":"array","items":{"type":"integer"}},{"type":"null"}]}`))
	require.NoError(t, err)
	begun := time.Now()
	violations, err := s.Check(json.RawMessage("[" + strings.Repeat(`"",`, 100_000) + `""]`))
	require.NoError(t, err)
	require.Len(t, violations, 1)
	assert.Equal(t, 100_001, strings.Count(violations[0].Message, "/"))
	assert.Less(t, time.Since(begun), waittest.Bound)
}

// A name that is long is part of the place of each violation below it.
func TestTheTextOfViolationsIsBounded(t *testing.T) {
	t.Parallel()
	s, err := jsonschema.Compile(json.RawMessage(`{"additionalProperties":{"anyOf":[{"type":"array","items":{"type":"integer"}},{"items":{"type":"null"}}]}}`))
	require.NoError(t, err)
	lists, err := jsonschema.Compile(json.RawMessage(`{"additionalProperties":{"items":{"type":"integer"}}}`))
	require.NoError(t, err)
	document := json.RawMessage(`{"` + strings.Repeat("k", 1<<20) + `":[` + strings.Repeat(`"",`, 20_000) + `""]}`)
	begun := time.Now()
	violations, err := s.Check(document)
	require.NoError(t, err)
	require.Len(t, violations, 1)
	violations, err = lists.Check(document)
	require.NoError(t, err)
	assert.Len(t, violations, 16)
	assert.Less(t, time.Since(begun), waittest.Bound)
}
