package openaicompat

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestExtendedKeywordsAreTakenOutWhereverTheyStand(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type": "object"}`: `{"type": "object"}`, // nothing to do: byte for byte
		`no schema`:          `no schema`,
		`{"properties": {"pattern": {"type": "string", "pattern": "^a", "format": "date"}}, "x": 1.0}`: `{"properties":{"pattern":{"type":"string","format":"date"}},"x":1.0}`,
		`{"items": {"minimum": 1, "anyOf": [{"maxLength": 2}, {"type": "null"}]}}`:                     `{"items":{"anyOf":[{},{"type":"null"}]}}`,
		`{"additionalProperties": {"examples": [1]}}`:                                                  `{"additionalProperties":{}}`,
		`{"additionalProperties": false, "maximum": 9}`:                                                `{"additionalProperties":false}`,
	} {
		assert.Equal(t, want, withoutExtendedKeywords(schema))
	}
}
