package toolschema_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

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
		`{"additionalProperties": {"examples": [1]}}`:                                                  `{"additionalProperties":{}}`,
		`{"additionalProperties": false, "maximum": 9}`:                                                `{"additionalProperties":false}`,
	} {
		given := &toolv1.ToolInfo{Name: "f", Description: "d", OptionsJson: "{}", ParametersJson: schema}
		got := toolschema.Without([]*toolv1.ToolInfo{given}, "pattern", "maxLength", "minimum", "maximum", "examples")[0]
		assert.Equal(t, want, got.GetParametersJson())
		assert.Equal(t, []string{"f", "d", "{}", schema}, []string{got.GetName(), got.GetDescription(), got.GetOptionsJson(), given.GetParametersJson()})
	}
	closed := []*toolv1.ToolInfo{{ParametersJson: `{"additionalProperties":false,"properties":{"a":{"additionalProperties":{"type":"string"}}}}`}}
	assert.JSONEq(t, `{"properties":{"a":{}}}`, toolschema.Without(closed, "additionalProperties")[0].GetParametersJson())
}
