package dialect

import (
	"slices"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// OpenCalls are the calls of a client's conversation that have no result yet, in their order. The zero value has none.
type OpenCalls struct{ calls []*toolv1.ToolCall }

// Open adds the calls of a turn.
func (o *OpenCalls) Open(calls []*toolv1.ToolCall) { o.calls = append(o.calls, calls...) }

// Close removes the first call that fits and returns it; nil if none does.
func (o *OpenCalls) Close(fits func(*toolv1.ToolCall) bool) *toolv1.ToolCall {
	for i, call := range o.calls {
		if !fits(call) {
			continue
		}
		if i == 0 { // Most results are in the order of the calls.
			o.calls = o.calls[1:]
		} else {
			o.calls = slices.Delete(o.calls, i, i+1)
		}
		return call
	}
	return nil
}

// IDs returns the ids of the calls.
func (o *OpenCalls) IDs() []string {
	ids := make([]string, len(o.calls))
	for i, call := range o.calls {
		ids[i] = call.GetId()
	}
	return ids
}
