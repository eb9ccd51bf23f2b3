package tool_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

const twoParameters = `{"type": "object", "properties": {"x": {"type": "integer", "description": "X"}, "y": {"type": "integer", "description": "Y"}}, "required": ["x", "y"], "additionalProperties": false}`

func TestIncompleteDefinitionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		kind tool.Kind
		says string
	}{
		{"a tool without a description", fixed("t", twoParameters, func(d *tool.Definition) { d.Public.Info.Description = " " }), "tool t: the description"},
		{"a parameter without a description", fixed("t", one(`{"type":"integer"}`)), "parameter value"},
		{"a parameter that is no object", fixed("t", one(`true`)), "parameter value"},
		{"a name that providers do not take", fixed("no spaces", twoParameters), "no spaces"},
		{"a schema that is none", fixed("t", `{"type":"thing"}`), "tool t: parameters"},
		{"a schema of something else", fixed("t", `{"type":"array"}`), "object"},
		{"no rule for unknown outcomes", fixed("t", twoParameters, func(d *tool.Definition) { d.Public.OnUnknown = 0 }), "on_unknown"},
		{"options that are no schema", tool.Kind{Name: "t", Options: json.RawMessage(`5`)}, "options"},
		{"a tool that cannot be made", tool.Kind{Name: "t", Options: json.RawMessage(`{}`), New: func(json.RawMessage) (tool.Tool, error) { return nil, errors.New("no key") }}, "no key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var registry tool.Registry
			require.ErrorContains(t, registry.Register(c.kind), c.says)
		})
	}
	var registry tool.Registry
	require.NoError(t, registry.Register(fixed("t", twoParameters)))
	require.ErrorContains(t, registry.Register(fixed("t", twoParameters)), "twice")
}

func TestDefinitionsAreSorted(t *testing.T) {
	t.Parallel()
	var registry tool.Registry
	for _, name := range []string{"b", "a", "c"} {
		require.NoError(t, registry.Register(fixed(name, twoParameters)))
	}
	var names []string
	for _, definition := range registry.Definitions("default") {
		names = append(names, definition.GetInfo().GetName())
		assert.NotEmpty(t, definition.GetOptionsSchemaJson())
	}
	assert.Equal(t, []string{"a", "b", "c"}, names)
}

func TestChangesOfAReference(t *testing.T) {
	t.Parallel()
	var registry tool.Registry
	require.NoError(t, registry.Register(fixed("add", twoParameters)))

	offers, err := registry.Offer("default", []*toolv1.ToolRef{
		{Name: "add", Rename: "plus", Description: "Adds.", ParameterDescriptions: map[string]string{"y": "The other."}},
		{Name: "add"},
		{Name: "add", ParametersJson: one(described(`{"type":"string"}`)), ParameterDescriptions: map[string]string{"value": "A text."}},
	})
	require.NoError(t, err)

	changed := offers[0].Public.GetInfo()
	assert.Equal(t, "plus", changed.GetName())
	assert.Equal(t, "Adds.", changed.GetDescription())
	assert.Equal(t, `{"type":"object","properties":{"x":{"type":"integer","description":"X"},"y":{"type":"integer","description":"The other."}},"required":["x","y"],"additionalProperties":false}`, changed.GetParametersJson())
	assert.Equal(t, twoParameters, offers[1].Public.GetInfo().GetParametersJson(), "the definition itself stays as it is")
	assert.Contains(t, offers[2].Public.GetInfo().GetParametersJson(), "A text.")

	assert.Same(t, offers[0], offers.Find("plus"))
	assert.Same(t, offers[1], offers.Find("add"), "of equal names the first")
	assert.Nil(t, offers.Find("minus"))
	assert.Equal(t, "x", offers[0].FirstParameter())
}

func TestReferencesThatCannotBeMet(t *testing.T) {
	t.Parallel()
	var registry tool.Registry
	require.NoError(t, registry.Register(fixed("add", twoParameters)))
	slow := fixed("slow", twoParameters)
	slow.Options = json.RawMessage(`{"type": "object", "properties": {"user": {}, "timeout": {"exclusiveMinimum": 0}}, "additionalProperties": false}`)
	require.NoError(t, registry.Register(slow))
	own := &toolv1.ToolDefinition{CallerRuns: true, Info: &toolv1.ToolInfo{Name: "submit", Description: "Submits.", ParametersJson: twoParameters}}
	for _, c := range []struct {
		name   string
		ref    *toolv1.ToolRef
		reason errorsv1.ErrorReason
		says   []string
	}{
		{"unknown name", &toolv1.ToolRef{Name: "sub"}, errorsv1.ErrorReason_ERROR_REASON_TOOL_NOT_FOUND, []string{`"sub"`, "add"}},
		{"unknown option", &toolv1.ToolRef{Name: "add", OptionsJson: `{"tmeout":1}`}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{"tools[0].options_json", "add", "tmeout"}},
		{"misspelt option", &toolv1.ToolRef{Name: "slow", OptionsJson: `{"timeot":1}`}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{"'timeot'; did you mean timeout? its options are timeout, user"}},
		{"options that are no JSON", &toolv1.ToolRef{Name: "add", OptionsJson: `{`}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{"options_json"}},
		{"unknown parameter", &toolv1.ToolRef{Name: "add", ParameterDescriptions: map[string]string{"z": "Z"}}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{`"z"`, "x, y"}},
		{"a bad new name", &toolv1.ToolRef{Name: "add", Rename: "a b"}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{"a b"}},
		{"a bad new schema", &toolv1.ToolRef{Name: "add", ParametersJson: "{"}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{"add"}},
		{"a definition of a tool that runs here", &toolv1.ToolRef{Name: "submit", Definition: change(own, func(d *toolv1.ToolDefinition) { d.CallerRuns = false })}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{"caller"}},
		{"a definition of another name", &toolv1.ToolRef{Name: "give_up", Definition: own}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{"submit", "give_up"}},
		{"an incomplete definition", &toolv1.ToolRef{Name: "submit", Definition: change(own, func(d *toolv1.ToolDefinition) { d.Info.Description = "" })}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{"description"}},
		{"a definition without info", &toolv1.ToolRef{Definition: &toolv1.ToolDefinition{CallerRuns: true}, Rename: "r"}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{"tools[0].definition.info"}},
		{"a worker's definition without info", &toolv1.ToolRef{Definition: &toolv1.ToolDefinition{Worker: "w"}, Description: "d"}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{"tools[0].definition.info"}},
		{"options of the caller's tool", &toolv1.ToolRef{Name: "submit", Definition: own, OptionsJson: "{}"}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{"options"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := registry.Offer("default", []*toolv1.ToolRef{c.ref})
			require.Error(t, err)
			assert.Equal(t, c.reason, rpcerr.Reason(err))
			for _, text := range c.says {
				assert.Contains(t, err.Error(), text)
			}
		})
	}
}

func change(definition *toolv1.ToolDefinition, f func(*toolv1.ToolDefinition)) *toolv1.ToolDefinition {
	changed := proto.CloneOf(definition)
	f(changed)
	return changed
}

func TestToolsOfTheCaller(t *testing.T) {
	t.Parallel()
	var registry tool.Registry
	offers, err := registry.Offer("default", []*toolv1.ToolRef{{
		Name:       "submit",
		Rename:     "answer",
		Definition: &toolv1.ToolDefinition{CallerRuns: true, Info: &toolv1.ToolInfo{Name: "submit", Description: "Submits.", ParametersJson: twoParameters}},
	}})
	require.NoError(t, err)
	assert.Equal(t, "answer", offers[0].Name())
	_, fault := offers[0].Check(json.RawMessage(`{"x":1,"y":"2"}`))
	assert.NotNil(t, fault)
	assert.Nil(t, offers[0].View(nil))
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	var registry tool.Registry
	require.NoError(t, registry.Register(fixed("t", twoParameters)))
	offers, err := registry.Offer("default", []*toolv1.ToolRef{{Name: "t"}, {Name: "t", Sandbox: "db"}})
	require.NoError(t, err)
	assert.Equal(t, "default", offers[0].Environment(""))
	assert.Equal(t, "web", offers[0].Environment("web"))
	assert.Equal(t, "db", offers[1].Environment(""))
	assert.Equal(t, "web", offers[1].Environment("web"))
}
