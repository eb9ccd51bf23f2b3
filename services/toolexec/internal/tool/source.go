package tool

import toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"

// Source has the tools that workers serve, in contrast to built-in ones. Its methods are safe for concurrent use.
type Source interface {
	// Definitions returns the tools that are on offer in a project, by name. Do not modify them.
	Definitions(project string) []*toolv1.ToolDefinition
	// Find returns the definition of the tool of that name that is on offer in a project, or nil. Do not modify it.
	Find(project, name string) *toolv1.ToolDefinition
	// Tool returns the tool of a definition: of one that is on offer, or of an earlier one that a run has pinned.
	Tool(definition *toolv1.ToolDefinition) Tool
}

// workerOptions is the schema of the options of workers' tools: there are none.
const workerOptions = `{"type":"object","additionalProperties":false}`

// CheckDefinition checks a worker's definition of a tool: its name, and that the tool and each of its parameters are
// described. The name must not be that of a built-in tool.
func (r *Registry) CheckDefinition(info *toolv1.ToolInfo) error {
	if r.kinds[info.GetName()] != nil {
		return errBuiltIn(info.GetName())
	}
	_, err := declare(&r.schemas, info)
	return err
}
