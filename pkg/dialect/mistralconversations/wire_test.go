package mistralconversations

import (
	"testing"

	"github.com/evalfleet/evalfleet/pkg/json/jsonread/jsonreadtest"
)

// What is on the wire reads as encoding/json reads it, and is refused as it refuses it.
func FuzzWire(f *testing.F) {
	for _, doc := range []string{
		`{"model":"m","inputs":[{"role":"user","content":"a\n\"b\" é"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"a": 1.0}}}],"completion_args":{"max_tokens":5,"stop":["a"]}}`,
		`{"model":"m","inputs":"q","completion_args":null,"stream":true}`, `{"inputs":7}`, `{"Model":"m"}`, `{"outputs":[{"content":7}]}`, `{"delta":{"a":1}}`,
		`{"conversation_id":"x","outputs":[{"type":"message.output","content":[{"type":"text","text":"a"}]},{"type":"function.call","arguments":{"a":1}},{"type":"tool.execution","info":{"b":2}}],
			"usage":{"prompt_tokens":1,"completion_tokens":null}}`,
		`{"type":"message.output.delta","output_index":1,"content":{"type":"thinking","thinking":[{"text":"x"}]}}`, `{"type":"conversation.response.done","usage":{"prompt_tokens":1}}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		jsonreadtest.Alike[wireRequest](t, doc)
		jsonreadtest.Alike[response](t, doc)
		jsonreadtest.Alike[event](t, doc)
	})
}
