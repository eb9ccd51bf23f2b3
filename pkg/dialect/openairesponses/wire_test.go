package openairesponses

import (
	"testing"

	"github.com/evalfleet/evalfleet/pkg/json/jsonread/jsonreadtest"
)

// What is on the wire reads as encoding/json reads it, and is refused as it refuses it.
func FuzzWire(f *testing.F) {
	for _, doc := range []string{
		`{"model":"m","input":[{"role":"user","content":"a\n\"b\" é"}],"tools":[{"type":"function","name":"f","parameters":{"a": 1.0}}],"max_output_tokens":5,"text":{"format":{"type":"text"}}}`,
		`{"model":"m","input":"q","reasoning":{"effort":"low"},"include":["x"],"previous_response_id":null,"stream":true}`,
		`{"id":"x","model":"m","output":[{"type":"message","content":[{"type":"output_text","text":"a","logprobs":[{"token":"t","bytes":[1]}]}]},{"type":"function_call","arguments":{"a":1}}],
			"usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":2}}}`,
		`{"type":"response.output_text.delta","output_index":1,"delta":"x"}`, `{"type":"response.created","response":{"id":"x"}}`,
		`{"output":[{"content":7}]}`, `{"error":{"message":"no"}}`, `{"Model":"m"}`, `{"delta":{"a":1}}`, `{"output":[{"content":"x"},{"content":null}]}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		jsonreadtest.Alike[wireRequest](t, doc)
		jsonreadtest.Alike[response](t, doc)
		jsonreadtest.Alike[event](t, doc)
	})
}
