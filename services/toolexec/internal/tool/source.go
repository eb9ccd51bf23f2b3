package tool

import toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"

// Source has tools that are not built in but served by workers. Its methods are safe for concurrent use.
type Source interface {
	// Definitions returns the tools that are on offer in a project, by name. They are not to be changed.
	Definitions(project string) []*toolv1.ToolDefinition
	// Find returns the definition of the tool of that name that is on offer in a project, or nil. It is not to be
	// changed.
	Find(project, name string) *toolv1.ToolDefinition
	// Tool makes the tool of a definition: of one that is on offer, or of an earlier one that a run has pinned.
	Tool(definition *toolv1.ToolDefinition) Tool
}

// workerOptions is the schema of the options of workers' tools: there are none.
const workerOptions = `{"type":"object","additionalProperties":false}`

// CheckDefinition checks what a worker would have models told of a tool: its name, and that the tool and each of its
// parameters are described. The name must not be that of a built-in tool.
func (r *Registry) CheckDefinition(info *toolv1.ToolInfo) error {
	if r.kinds[info.GetName()] != nil {
		return errBuiltIn(info.GetName())
	}
	_, err := declare(&r.schemas, info)
	return err
}
