package mistralchat

import (
	"testing"

	"github.com/evalfleet/evalfleet/pkg/json/jsonread/jsonreadtest"
)

// What is on the wire reads as encoding/json reads it, and is refused as it refuses it.
func FuzzWire(f *testing.F) {
	for _, doc := range []string{
		`{"model":"m","messages":[{"role":"user","content":"a\n\"b\" é"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\":1}"}}]},
			{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"x"}]}],"max_tokens":5,"temperature":0.5,"stop":["a"]}`,
		`{"model":"m","messages":[{"content":5}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"a": 1.0},"strict":true}},"tools":[{"function":{"parameters":{}}}]}`,
		`{"id":"x","model":"m","choices":[{"index":1,"message":{"content":[{"type":"thinking","thinking":[{"text":"a"}]},{"type":"image_url","image_url":{"url":"u"}}],
			"tool_calls":[{"index":0,"function":{"arguments":{"a":1}}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}}`,
		`{"object":"error","message":"no","code":5}`, `{"messages":{}}`, `{"Model":"m"}`, `{"choices":[{"message":{"content":7}}]}`, `{"choices":[{"delta":{"content":`,
		`{"choices":[{"delta":{"content":{"type":"image_url","image_url":"u"}}}]}`, `{"choices":[{"message":{"content":[{"image_url":7}]}}]}`, `{"choices":[{"message":{"content":[{"image_url":null}]}}]}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		jsonreadtest.Alike[wireRequest](t, doc)
		jsonreadtest.Alike[completion](t, doc)
	})
}
