package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/jsonschema"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

const parent = "projects/default"

// TestGoldenRawArguments: raw argument text in, parsed arguments or a parse error out.
func TestGoldenRawArguments(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "arguments_raw", goldentest.Load(t, "tools/arguments_raw.json"), func(t *goldentest.T, c goldentest.Case) {
		var kinds []tool.Kind
		var refs []*toolv1.ToolRef
		for _, declared := range members(t, c, "tools") {
			kinds = append(kinds, echo(declared.name, required(declared.value), false))
			refs = append(refs, &toolv1.ToolRef{Name: declared.name})
		}
		raw := rawText(t, c)
		response, err := newService(t, nil, kinds...).ParseToolCall(t.Context(), &toolv1.ParseToolCallRequest{
			Parent: parent, Tools: refs, Function: c.At("function").(string), Raw: raw,
		})
		if err != nil {
			t.Fatal(err)
		}
		call := response.GetCall()
		got := map[string]any{"arguments": json.RawMessage(call.GetArgumentsJson())}
		if call.ParseError != nil {
			got["parse_error"] = call.GetParseError()
		}
		if c.At("result", "arguments") == "<as given>" && call.GetArgumentsJson() == raw {
			got["arguments"] = "<as given>"
		}
		t.Equal(c.At("result"), got)
	})
}

// TestGoldenArguments: parsed arguments in; the arguments for the tool, or the message for the model, and every
// violation out.
func TestGoldenArguments(t *testing.T) {
	t.Parallel()
	cases := goldentest.Load(t, "tools/arguments_one.json", "tools/arguments_many.json")
	goldentest.Run(t, "arguments", cases, func(t *goldentest.T, c goldentest.Case) {
		schema, verbatim := declaredSchema(t, c)
		arguments := document(t, c.At("arguments"))
		offered := newService(t, nil, echo("declared", schema, verbatim))
		response, err := offered.ReviewTools(t.Context(), &toolv1.ReviewToolsRequest{
			Parent: parent,
			Tools:  []*toolv1.ToolRef{{Name: "declared"}},
			Calls:  []*toolv1.ToolCall{{Id: "c1", Function: "declared", ArgumentsJson: string(arguments)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		review := response.GetReviews()[0]
		got := map[string]any{}
		if fault := review.GetError(); fault != nil {
			got["error"] = errorForm(fault)
		} else {
			value, err := orderedjson.Decode([]byte(review.GetCall().GetArgumentsJson()))
			if err != nil {
				t.Fatal(err)
			}
			got["arguments"] = received(value).(map[string]any)["map"]
		}
		t.Equal(jsonValue(c.At("result")), got)
		if want := c.At("violations"); want != nil {
			t.Equal(map[string]any{"violations": want}, map[string]any{"violations": violations(t, schema, arguments)}, match.AnyOrder("violations"))
		}
	})
}

// declared is a name with its description, in the order of the record.
type declared struct {
	name  string
	value any
}

// members returns the members of an object of the case in order.
func members(t *goldentest.T, c goldentest.Case, name string) []declared {
	whole, err := orderedjson.DecodeObject(c.Raw)
	if err != nil {
		t.Fatal(err)
	}
	value, _ := whole.Get(name)
	object, ok := value.(*orderedjson.Object)
	if !ok {
		return nil
	}
	var all []declared
	for name, value := range object.All() {
		all = append(all, declared{name, value})
	}
	return all
}

// required is the schema of parameters given by name and type, all of them required.
func required(types any) string {
	var properties, names []string
	for name, kind := range types.(*orderedjson.Object).All() {
		properties = append(properties, fmt.Sprintf(`%q:{"type":%q,"description":"A parameter."}`, name, kind))
		names = append(names, fmt.Sprintf("%q", name))
	}
	return `{"type":"object","properties":{` + strings.Join(properties, ",") + `},"required":[` + strings.Join(names, ",") + `],"additionalProperties":false}`
}

// echo is a kind of tool with these parameters.
func echo(name, schema string, verbatim bool) tool.Kind {
	answer := func(_ context.Context, arguments json.RawMessage) (*tool.Result, error) { return jsonResult(arguments) }
	return simple(name, schema, answer, func(d *tool.Definition) { d.Verbatim = verbatim })
}

// rawText is the raw argument text of a case.
func rawText(t *goldentest.T, c goldentest.Case) string {
	expanded, err := corpus.Expand(c.At("raw"))
	if err != nil {
		t.Fatal(err)
	}
	switch raw := expanded.(type) {
	case nil:
		return ""
	case string:
		return raw
	default: // an object that represents its JSON
		return string(document(t, c.At("raw")))
	}
}

// document writes a recorded value as JSON.
func document(t *goldentest.T, recorded any) json.RawMessage {
	expanded, err := corpus.Expand(recorded)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(expanded)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// declaredSchema returns the parameters of a case as a schema, and whether the tool takes them as a free map.
func declaredSchema(t *goldentest.T, c goldentest.Case) (schema string, verbatim bool) {
	words, isWords := c.At("declared").(string)
	if params := c.At("tool_params"); params != nil {
		return string(document(t, params)), strings.HasPrefix(words, "free map")
	}
	if isWords {
		return `{"type":"object","properties":{}}`, true
	}
	of := wordSchema(c.At("declared", "value").(string))
	if of == "" {
		t.Skipf("no schema for %v", c.At("declared", "value"))
	}
	value, err := orderedjson.DecodeObject([]byte(of))
	if err != nil {
		t.Fatal(err)
	}
	value.Set("description", "A parameter.")
	return `{"type":"object","properties":{"value":` + string(orderedjson.Append(nil, value)) + `},"required":["value"],"additionalProperties":false}`, false
}

// wordSchema is the schema of a type declared in words, as declarations of that type are recorded.
func wordSchema(words string) string {
	plain := map[string]string{
		"any":                         `{}`,
		"integer":                     `{"type":"integer"}`,
		"number":                      `{"type":"number"}`,
		"string":                      `{"type":"string"}`,
		"boolean":                     `{"type":"boolean"}`,
		"null":                        `{"type":"null"}`,
		"datetime":                    `{"type":"string","format":"date-time"}`,
		"date":                        `{"type":"string","format":"date"}`,
		"time":                        `{"type":"string","format":"time"}`,
		"list":                        `{"type":"array","items":{}}`,
		"map":                         `{"type":"object","additionalProperties":{}}`,
		"tuple of integer and string": `{"type":"array","items":{"type":"integer"}}`,
		"enum":                        `{"type":"string","enum":["red","blue"]}`,
		"literal a, b":                `{"type":"string","enum":["a","b"]}`,
		"literal 1, 2":                `{"type":"integer","enum":[1,2]}`,
		"optional literal":            `{"anyOf":[{"type":"string","enum":["a","b"]},{"type":"null"}]}`,
		"validated record":            `{"type":"object","properties":{"x":{"type":"integer","description":"X"},"y":{"type":"integer","description":"Y","default":3}},"additionalProperties":false,"required":["x"]}`,
		"record":                      `{"type":"object","properties":{"left":{"type":"string"},"right":{"type":"integer"}},"additionalProperties":false,"required":["left"]}`,
		"typed map":                   `{"type":"object","properties":{"key":{"type":"string"},"size":{"type":"integer"}},"additionalProperties":false,"required":["key","size"]}`,
		"recursive record":            `{"type":"object","properties":{"name":{"type":"string"},"children":{"type":"array","default":[],"items":{"type":"object","properties":{"name":{"type":"string"},"children":{"type":"array","default":[],"items":{}}},"required":["name"]}}},"additionalProperties":false,"required":["name"]}`,
	}
	if schema, ok := plain[words]; ok {
		return schema
	}
	for _, composed := range []struct{ prefix, form string }{
		{"list of ", `{"type":"array","items":%s}`},
		{"set of ", `{"type":"array","items":%s}`},
		{"map of ", `{"type":"object","additionalProperties":%s}`},
		{"optional ", `{"anyOf":[%s,{"type":"null"}]}`},
	} {
		if inner, ok := strings.CutPrefix(words, composed.prefix); ok {
			switch inner {
			case "records":
				inner = "validated record"
			case "lists":
				inner = "list of integer"
			}
			if schema := wordSchema(inner); schema != "" {
				return fmt.Sprintf(composed.form, schema)
			}
			return ""
		}
	}
	var members []string
	for member := range strings.SplitSeq(words, " or ") {
		schema := wordSchema(member)
		if schema == "" || member == words {
			return ""
		}
		members = append(members, schema)
	}
	return `{"anyOf":[` + strings.Join(members, ",") + `]}`
}

// received converts a value into the recorded form of received arguments.
func received(value any) any {
	switch v := value.(type) {
	case json.Number:
		if !strings.ContainsAny(string(v), ".eE") {
			return map[string]any{"integer": v}
		}
		if float, _ := v.Float64(); math.IsInf(float, 1) {
			return map[string]any{"number": "inf"}
		}
		return map[string]any{"number": v}
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = received(item)
		}
		return list
	case *orderedjson.Object:
		object := map[string]any{}
		for name, member := range v.All() {
			object[name] = received(member)
		}
		return map[string]any{"map": object}
	default:
		return value
	}
}

// jsonValue removes what the recorded form adds to a JSON value: that a map is a record, a list a tuple, a text a
// member of an enum.
func jsonValue(recorded any) any {
	switch v := recorded.(type) {
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = jsonValue(item)
		}
		return list
	case map[string]any:
		if _, ok := v["enum"]; ok {
			return v["value"]
		}
		if tuple, ok := v["tuple"]; ok {
			return jsonValue(tuple)
		}
		object := map[string]any{}
		for name, member := range v {
			if name == "record" {
				name = "map"
			}
			object[name] = jsonValue(member)
		}
		return object
	default:
		return recorded
	}
}

// violations checks arguments and returns the schema's violations in the recorded form.
func violations(t *goldentest.T, schema string, arguments json.RawMessage) []any {
	compiled, err := jsonschema.Compile(json.RawMessage(schema))
	if err != nil {
		t.Fatal(err)
	}
	found, err := compiled.Check(arguments)
	if err != nil {
		t.Fatal(err)
	}
	list := []any{}
	for _, violation := range found {
		at := violation.At
		if at == "" {
			at = "/"
		}
		form := map[string]any{"keyword": violation.Keyword, "at": at}
		names := quoted(violation.Message)
		switch violation.Keyword {
		case "required":
			form["missing"] = names
		case "additionalProperties":
			form["extra"] = names
		}
		list = append(list, form)
	}
	return list
}

// quoted returns the texts in single quotes.
func quoted(message string) []any {
	var texts []any
	for i, part := range strings.Split(message, "'") {
		if i%2 == 1 {
			texts = append(texts, part)
		}
	}
	return texts
}

// errorForm is an error in the recorded form.
func errorForm(fault *toolv1.ToolCallError) map[string]any {
	kind := strings.TrimPrefix(fault.GetType().String(), "TOOL_ERROR_TYPE_")
	return map[string]any{"type": strings.ToLower(kind), "message": fault.GetMessage()}
}
