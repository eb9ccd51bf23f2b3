package anthropic

import (
	"testing"

	"github.com/evalfleet/evalfleet/pkg/json/jsonread/jsonreadtest"
)

// What is on the wire reads as encoding/json reads it, and is refused as it refuses it.
func FuzzWire(f *testing.F) {
	for _, doc := range []string{
		`{"model":"m","max_tokens":5,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"a\n\"b\" \u00e9"},{"role":"assistant","content":[{"type":"tool_use","id":"c","input":{"a": 1.0}}]}],
			"tools":[{"name":"f","input_schema":{"type":"object"}}],"thinking":{"type":"enabled","budget_tokens":9},"tool_choice":{"type":"tool","name":"f"},"metadata":{"user_id":"u"},"stop_sequences":["x"]}`,
		`{"type":"tool_result","tool_use_id":"c","content":"text","is_error":true,"cache_control":null,"source":{"type":"content","content":[]}}`,
		`{"id":"m","content":[{"type":"text","text":"a"},5,null],"stop_reason":"end_turn","usage":{"input_tokens":1,"iterations":[{}]},"stop_details":{"type":"refusal"}}`,
		`{"type":"error","error":{"type":"overloaded_error","message":"m"}}`, `{"messages":{}}`, `{"Model":"m"}`, `{"content":"text"}`, `{"text":5}`, `{"content":[`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		jsonreadtest.Alike[wireRequest](t, doc)
		jsonreadtest.Alike[wireBlock](t, doc)
		jsonreadtest.Alike[Message](t, doc)
	})
}
