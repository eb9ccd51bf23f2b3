package run

import toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"

// VisibleName returns the name by which a model calls a referred tool.
func VisibleName(ref *toolv1.ToolRef) string {
	if ref.GetRename() != "" {
		return ref.GetRename()
	}
	return ref.GetName()
}

// PinTool makes a reference to a worker's tool hold the definition itself, with what the reference changes of it, so that
// it means the same while no worker is connected. References to other tools stay as they are.
func PinTool(ref *toolv1.ToolRef, d *toolv1.ToolDefinition) {
	if d.GetWorker() == "" {
		return
	}
	ref.Name, ref.Definition = d.GetInfo().GetName(), d
	ref.Rename, ref.Description, ref.ParameterDescriptions, ref.ParametersJson = "", "", nil, ""
}
