package anthropic

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// closed returns a schema that allows only named members, at all levels, as the format requires of an answer's schema,
// and without the bounds of numbers and texts, which the server refuses:
// https://platform.claude.com/docs/en/build-with-claude/structured-outputs. A value that is no object is returned
// unchanged.
func closed(schema string) string {
	return dialect.EditSchema(schema, func(object *orderedjson.Object) bool {
		dialect.DropBounds(object)
		object.Set("additionalProperties", false)
		return true
	})
}
