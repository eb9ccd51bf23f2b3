package anthropic

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// bounds are the keywords that the server does not accept in a schema of answers:
// https://platform.claude.com/docs/en/build-with-claude/structured-outputs.
var bounds = []string{"minimum", "maximum", "minLength", "maxLength", "pattern", "examples"}

// closed returns a schema that allows only named members, at all levels, as the format requires of an answer's schema,
// and without the bounds of numbers and texts, which the server refuses. A value that is no object is returned
// unchanged.
func closed(schema string) string {
	return dialect.EditSchema(schema, func(object *orderedjson.Object) bool {
		for _, keyword := range bounds {
			object.Delete(keyword)
		}
		object.Set("additionalProperties", false)
		return true
	})
}
