package dialect

import toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"

// OpenCalls are the calls of a client's conversation that have no result yet, in their order. The zero value has none.
type OpenCalls struct{ calls []*toolv1.ToolCall }

// Open adds the calls of a turn.
func (o *OpenCalls) Open(calls []*toolv1.ToolCall) { o.calls = append(o.calls, calls...) }

// Close removes the first call that fits and returns it; nil if none does.
func (o *OpenCalls) Close(fits func(*toolv1.ToolCall) bool) *toolv1.ToolCall {
	for i, call := range o.calls {
		if fits(call) {
			o.calls = append(o.calls[:i:i], o.calls[i+1:]...)
			return call
		}
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
