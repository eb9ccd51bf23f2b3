package toolschema_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/toolschema"
)

func TestKeywordsAreTakenOutWhereverTheyStand(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type": "object"}`: `{"type": "object"}`, // nothing to do: byte for byte
		`no schema`:          `no schema`,
		`{"properties": {"pattern": {"type": "string", "pattern": "^a", "format": "date"}}, "x": 1.0}`: `{"properties":{"pattern":{"type":"string","format":"date"}},"x":1.0}`,
		`{"items": {"minimum": 1, "anyOf": [{"maxLength": 2}, {"type": "null"}]}}`:                     `{"items":{"anyOf":[{},{"type":"null"}]}}`,
		`{"$defs": {"a": {"pattern": "^a"}}, "oneOf": [{"minLength": 1}], "allOf": [{"maximum": 1}]}`:  `{"$defs":{"a":{}},"oneOf":[{}],"allOf":[{}]}`,
		`{"additionalProperties": {"examples": [1]}}`:                                                  `{"additionalProperties":{}}`,
		`{"additionalProperties": false, "maximum": 9}`:                                                `{"additionalProperties":false}`,
	} {
		given := &toolv1.ToolInfo{Name: "f", Description: "d", OptionsJson: "{}", ParametersJson: schema}
		got := toolschema.Edit([]*toolv1.ToolInfo{given}, dialect.DropBounds)[0]
		assert.Equal(t, want, got.GetParametersJson())
		assert.Equal(t, []string{"f", "d", "{}", schema}, []string{got.GetName(), got.GetDescription(), got.GetOptionsJson(), given.GetParametersJson()})
	}
	closed := []*toolv1.ToolInfo{{ParametersJson: `{"additionalProperties":false,"properties":{"a":{"additionalProperties":{"type":"string"}}},"$defs":{"b":{"additionalProperties":false}}}`}}
	assert.JSONEq(t, `{"properties":{"a":{}},"$defs":{"b":{}}}`, toolschema.Edit(closed, toolschema.Open)[0].GetParametersJson())
}
