// Package toolschema edits the schemas of tools, for APIs that refuse some of what a schema may have.
package toolschema

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Edit returns copies of tools whose schemas are edited, with those within them (dialect.EditSchema).
func Edit(tools []*toolv1.ToolInfo, edit func(*orderedjson.Object) (changed bool)) []*toolv1.ToolInfo {
	all := make([]*toolv1.ToolInfo, len(tools))
	for i, tool := range tools {
		all[i] = &toolv1.ToolInfo{
			Name: tool.GetName(), Description: tool.GetDescription(), OptionsJson: tool.GetOptionsJson(), ParametersJson: dialect.EditSchema(tool.GetParametersJson(), edit),
		}
	}
	return all
}

const additional = "additionalProperties"

// Open is an edit that deletes what a schema says of members that it does not name.
func Open(schema *orderedjson.Object) (changed bool) {
	_, changed = schema.Get(additional)
	schema.Delete(additional)
	return changed
}
