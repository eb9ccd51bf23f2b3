package mistralchat_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralchat"
)

// Calls of one index with several ids are several calls, also where a later call has the index that one of them got.
func TestCallsOfOneIndexAreToldApartByTheirIDs(t *testing.T) {
	t.Parallel()
	call := func(index, id, name, arguments string) string {
		return `{"id":"x","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":` + index + `,"id":"` + id + `","function":{"name":"` + name + `","arguments":"` + arguments + `"}}]}}]}`
	}
	r := mistralchat.Codec{}.NewStreamReader()
	indices := map[string]int32{}
	for _, chunk := range []string{
		call("0", "a", "f", `{\"x\":`), call("0", "b", "g", `{\"y\":`), call("0", "null", "", "2}"), call("0", "a", "", "1}"), call("1", "c", "h", "{}"),
		`{"id":"x","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
	} {
		deltas, err := r.Add(dialect.Event{Data: []byte(chunk)})
		require.NoError(t, err)
		for _, delta := range deltas {
			if id := delta.GetToolCall().GetId(); id != "" {
				indices[id] = delta.GetToolCall().GetIndex()
			}
		}
	}
	output, err := r.Response().Output(nil)
	require.NoError(t, err)
	calls := map[string]string{}
	for _, c := range chat.FirstMessage(output).GetToolCalls() {
		calls[c.GetId()] = c.GetFunction() + c.GetArgumentsJson()
	}
	assert.Equal(t, map[string]string{"a": `f{"x":1}`, "b": `g{"y":2}`, "c": "h{}"}, calls)
	assert.Equal(t, map[string]int32{"a": 0, "b": 1, "c": 2}, indices, "watchers tell them apart by these")
}
