package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// fixedTool is a tool with a given definition, which returns its arguments.
type fixedTool struct{ definition *tool.Definition }

func (f *fixedTool) Definition() *tool.Definition { return f.definition }

func (f *fixedTool) Call(_ context.Context, call *tool.Call) (*tool.Result, error) {
	return tool.Text(string(call.Arguments)), nil
}

// fixed is a kind of tool with these parameters and no options.
func fixed(name, parameters string, change ...func(*tool.Definition)) tool.Kind {
	definition := &tool.Definition{Public: &toolv1.ToolDefinition{
		Info:      &toolv1.ToolInfo{Name: name, Description: "A tool.", ParametersJson: parameters},
		OnUnknown: toolv1.OnUnknown_ON_UNKNOWN_RETRY,
	}}
	for _, c := range change {
		c(definition)
	}
	return tool.Kind{
		Name:    name,
		Options: json.RawMessage(`{"type": "object", "additionalProperties": false}`),
		New:     func(json.RawMessage) (tool.Tool, error) { return &fixedTool{definition}, nil },
	}
}

// one is an object schema with one required parameter `value`.
func one(schema string) string {
	return fmt.Sprintf(`{"type":"object","properties":{"value":%s},"required":["value"],"additionalProperties":false}`, schema)
}

// described adds a description, which is required for every parameter.
func described(schema string) string { return `{"description":"A value.",` + schema[1:] }

func offer(t *testing.T, kind tool.Kind) *tool.Offer {
	t.Helper()
	var registry tool.Registry
	require.NoError(t, registry.Register(kind))
	offers, err := registry.Offer("default", []*toolv1.ToolRef{{Name: kind.Name}})
	require.NoError(t, err)
	return offers[0]
}

func TestArgumentsAreCoerced(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, schema, value, want string }{
		{"a whole number of an integer", `{"type":"integer"}`, `5.0`, `5`},
		{"with an exponent", `{"type":"integer"}`, `1.5e3`, `1500`},
		{"of any size", `{"type":"integer"}`, `1000000000000000000000000000000`, `1000000000000000000000000000000`},
		{"a number stays as written", `{"type":"number"}`, `2.50`, `2.50`},
		{"a whole number", `{"type":"number"}`, `-2`, `-2.0`},
		{"a whole number or null", `{"type":["number","null"]}`, `2`, `2.0`},
		{"a whole number inside a list", `{"type":"array","items":{"type":"number"}}`, `[1,2e3]`, `[1.0,2e3]`},
		{"a union with numbers stays as sent", `{"anyOf":[{"type":"number"},{"type":"string"}]}`, `1`, `1`},
		{"inside a list", `{"type":"array","items":{"type":"integer"}}`, `[1,2.0]`, `[1,2]`},
		{"inside a map", `{"type":"object","additionalProperties":{"type":"array","items":{"type":"integer"}}}`, `{"a":[1.0]}`, `{"a":[1]}`},
		{"or null, a value", `{"anyOf":[{"type":"integer"},{"type":"null"}]}`, `1.0`, `1`},
		{"or null, null", `{"anyOf":[{"type":"null"},{"type":"integer"}]}`, `null`, `null`},
		{"or null, as two types", `{"type":["integer","null"]}`, `1.0`, `1`},
		{"a union stays as sent", `{"anyOf":[{"type":"integer"},{"type":"string"}]}`, `1.0`, `1.0`},
		{"a union of types stays as sent", `{"type":["integer","string"]}`, `1.0`, `1.0`},
		{"an enumeration stays as sent", `{"type":"integer","enum":[1,2]}`, `1.0`, `1.0`},
		{"defaults of members", `{"type":"array","items":{"type":"object","properties":{"x":{"type":"integer"},"y":{"type":"integer","default":3},"z":{"anyOf":[{"type":"string"},{"type":"null"}]},"w":{"type":"string"}},"required":["x"]}}`, `[{"x":1.0}]`, `[{"x":1,"y":3,"z":null}]`},
		{"lists of different items", `{"type":"array","items":[{"type":"integer"}]}`, `[1.0]`, `[1.0]`},
		{"anything", `{"title":"v"}`, `{"a":[1.0,null]}`, `{"a":[1.0,null]}`},
		{"a date", `{"type":"string","format":"date"}`, `"2024-02-29"`, `"2024-02-29"`},
		{"a time", `{"type":"string","format":"time"}`, `"07:08"`, `"07:08"`},
		{"a time with a fraction and an offset", `{"type":"string","format":"time"}`, `"07:08:09.123+02:00"`, `"07:08:09.123+02:00"`},
		{"a date and time", `{"type":"string","format":"date-time"}`, `"2024-05-06T07:08:09Z"`, `"2024-05-06T07:08:09Z"`},
		{"a date for a date and time", `{"type":"string","format":"date-time"}`, `"2024-05-06"`, `"2024-05-06"`},
		{"other formats assert nothing", `{"type":"string","format":"uri"}`, `"not a uri"`, `"not a uri"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := offer(t, fixed("t", one(described(c.schema))))
			got, fault := o.Check(json.RawMessage(`{"value":` + c.value + `}`))
			require.Nil(t, fault)
			assert.Equal(t, `{"value":`+c.want+`}`, string(got))
		})
	}
}

func TestAbsentParametersTakeTheirDefaults(t *testing.T) {
	t.Parallel()
	o := offer(t, fixed("t", `{"type":"object","properties":{`+
		`"a":{"type":"string","description":"A"},"b":{"anyOf":[{"type":"string"},{"type":"null"}],"description":"B"},"c":{"type":"boolean","default":true,"description":"C"}},`+
		`"required":["a"],"additionalProperties":false}`))
	for arguments, want := range map[string]string{
		`{"a":"q"}`:                       `{"a":"q","b":null,"c":true}`,
		`{"c":false,"a":"q"}`:             `{"c":false,"a":"q","b":null}`,
		`{"a": "q", "b": "", "c": false}`: `{"a": "q", "b": "", "c": false}`,
	} {
		got, fault := o.Check(json.RawMessage(arguments))
		require.Nil(t, fault)
		assert.Equal(t, want, string(got), "what needs no change stays byte for byte")
	}
}

func TestVerbatimArgumentsAreOnlyChecked(t *testing.T) {
	t.Parallel()
	o := offer(t, fixed("t", `{"type":"object","properties":{"d":{"type":"string","format":"date","default":"2024-01-01","description":"D"}},"additionalProperties":false}`,
		func(d *tool.Definition) { d.Verbatim = true }))
	for _, arguments := range []string{`{"d":"no date"}`, `{}`} {
		got, fault := o.Check(json.RawMessage(arguments))
		require.Nil(t, fault)
		assert.Equal(t, arguments, string(got))
	}
	_, fault := o.Check(json.RawMessage(`{"d":5}`))
	require.NotNil(t, fault)
}

func TestFaultsOfArgumentsAreForTheModel(t *testing.T) {
	t.Parallel()
	integer := offer(t, fixed("count", one(described(`{"type":"integer"}`))))
	date := offer(t, fixed("on", one(described(`{"type":"string","format":"date"}`))))
	for _, c := range []struct {
		name      string
		offer     *tool.Offer
		arguments string
		says      []string
	}{
		{"all breaches at once", integer, `{"value":"five","other":1}`, []string{"count", "2 places", "/value", "integer", "other"}},
		{"one breach", integer, `{}`, []string{"1 place:", "'value' is missing"}},
		{"empty text is no arguments", integer, ``, []string{"'value' is missing"}},
		{"no object", integer, `[1]`, []string{"object"}},
		{"no JSON", integer, `{`, []string{"cannot be read"}},
		{"too deep", integer, `{"value":` + nested(100) + `}`, []string{"100 levels"}},
		{"a huge number", integer, `{"value":1e99999}`, []string{"out of range"}},
		{"no date", date, `{"value":"soon"}`, []string{"value", `"soon"`, "date", "2024-05-06"}},
		{"a date and time for a date", date, `{"value":"2024-05-06T00:00:00"}`, []string{"2024-05-06T00:00:00"}},
		{"no such day", date, `{"value":"2023-02-29"}`, []string{"2023-02-29"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, fault := c.offer.Check(json.RawMessage(c.arguments))
			require.NotNil(t, fault)
			assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING, fault.Type)
			for _, text := range c.says {
				assert.Contains(t, fault.Message, text)
			}
		})
	}
}

func nested(levels int) string {
	text := ""
	for range levels {
		text = "[" + text + "]"
	}
	return text
}

func TestNoTimes(t *testing.T) {
	t.Parallel()
	o := offer(t, fixed("t", one(described(`{"type":"string","format":"time"}`))))
	for _, text := range []string{"25:00", "7:08", "07:60", "0708", "", "07:08 ", "soon", "07:08:09+25:00x"} {
		value, err := json.Marshal(map[string]string{"value": text})
		require.NoError(t, err)
		_, fault := o.Check(value)
		require.NotNil(t, fault, text)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":["integer","null"],"description":"A","default":1.0},"b":{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"type":"null"}],"description":"B"}}}`, `{"a":2.0,"b":[{"b":null}]}`)
	f.Fuzz(func(t *testing.T, parameters, arguments string) {
		var registry tool.Registry
		if registry.Register(fixed("t", parameters)) != nil {
			return
		}
		offers, err := registry.Offer("default", []*toolv1.ToolRef{{Name: "t"}})
		require.NoError(t, err)
		got, fault := offers[0].Check(json.RawMessage(arguments))
		require.True(t, fault != nil || json.Valid(got))
	})
}

func TestMembersOfMembersAreCoerced(t *testing.T) {
	t.Parallel()
	o := offer(t, fixed("nested", one(described(`{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"string","format":"date"}}}`))))
	_, fault := o.Check(json.RawMessage(`{"value":{"a":{"b":"2024-05-06","c":"x"}}}`))
	require.NotNil(t, fault)
	assert.Contains(t, fault.Error(), `value.a.c: "x" is not a date`)
	var members strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&members, `"m%d":"2024-05-06",`, i)
	}
	begun := time.Now()
	arguments := json.RawMessage(`{"value":{"` + strings.Repeat("k", 2<<20) + `":{` + members.String() + `"m":"2024-05-06"}}}`)
	checked, fault := o.Check(arguments)
	require.Nil(t, fault)
	assert.True(t, bytes.Equal(arguments, checked), "nothing is to be changed")
	assert.Less(t, time.Since(begun), waittest.Bound)
}
