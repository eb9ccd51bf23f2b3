package run

import toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"

// VisibleName returns the name by which a model calls a referred tool.
func VisibleName(ref *toolv1.ToolRef) string {
	if ref.GetRename() != "" {
		return ref.GetRename()
	}
	return ref.GetName()
}

// PinTool stores the definition of a worker's tool in the reference, with the changes that the reference makes to it,
// so that the reference keeps its meaning while no worker is connected. References to other tools stay unchanged.
func PinTool(ref *toolv1.ToolRef, d *toolv1.ToolDefinition) {
	if d.GetWorker() == "" {
		return
	}
	ref.Name, ref.Definition = d.GetInfo().GetName(), d
	ref.Rename, ref.Description, ref.ParameterDescriptions, ref.ParametersJson = "", "", nil, ""
}
