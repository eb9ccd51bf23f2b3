package dialect

import (
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// OpenCalls are the calls of a client's conversation that have no result yet, in their order. The zero value has none.
type OpenCalls struct {
	calls []*toolv1.ToolCall // nil where the call has its result
	open  int
	// byID and byName are the places of calls by their ids and by the names of their functions, in order.
	byID, byName map[string][]int
}

// Open adds the calls of a turn.
func (o *OpenCalls) Open(calls []*toolv1.ToolCall) {
	if o.open == 0 {
		*o = OpenCalls{byID: map[string][]int{}, byName: map[string][]int{}}
	}
	for _, call := range calls {
		at := len(o.calls)
		o.calls = append(o.calls, call)
		o.byID[call.GetId()] = append(o.byID[call.GetId()], at)
		o.byName[call.GetFunction()] = append(o.byName[call.GetFunction()], at)
	}
	o.open += len(calls)
}

// CloseID removes the first call with an id, of a function or, if that is empty, of any, and returns it; nil if there
// is none.
func (o *OpenCalls) CloseID(id, function string) *toolv1.ToolCall {
	return o.take(o.byID, id, function)
}

// CloseName removes the first call of a function, and returns it; nil if there is none.
func (o *OpenCalls) CloseName(function string) *toolv1.ToolCall {
	return o.take(o.byName, function, function)
}

func (o *OpenCalls) take(places map[string][]int, key, function string) *toolv1.ToolCall {
	all := places[key]
	for len(all) > 0 && o.calls[all[0]] == nil {
		all = all[1:]
		places[key] = all
	}
	for _, at := range all {
		if call := o.calls[at]; call != nil && (function == "" || call.GetFunction() == function) {
			o.calls[at] = nil
			o.open--
			return call
		}
	}
	return nil
}

// IDs returns the ids of the calls.
func (o *OpenCalls) IDs() []string {
	ids := make([]string, 0, o.open)
	if o.open == 0 {
		return ids
	}
	for _, call := range o.calls {
		if call != nil {
			ids = append(ids, call.GetId())
		}
	}
	return ids
}
