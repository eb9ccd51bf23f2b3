package bedrockconverse

import (
	"testing"

	"github.com/evalfleet/evalfleet/pkg/json/jsonread/jsonreadtest"
)

// What is on the wire reads as encoding/json reads it, and is refused as it refuses it.
func FuzzWire(f *testing.F) {
	for _, doc := range []string{
		`{"messages":[{"role":"user","content":[{"text":"a\n\"b\" \u00e9"},{"image":{"format":"png","source":{"bytes":"aGk="}}},{"cachePoint":{"type":"default"}}]},{"role":"assistant",
			"content":[{"toolUse":{"toolUseId":"t","name":"f","input":{"a":1.0}}},{"reasoningContent":{"reasoningText":{"text":"t","signature":"s"}}},{"citationsContent":{"content":[{"text":"c"}]}}]},
			{"role":"user","content":[{"toolResult":{"toolUseId":"t","content":[{"text":"x"},{"json":{"a":[]}}],"status":"error"}}]}],"system":[{"text":"s"}],
			"inferenceConfig":{"maxTokens":5,"temperature":0.5,"topP":1,"stopSequences":["a"]},"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{}}}}],"toolChoice":{"auto":{}}},
			"outputConfig":{"textFormat":{"structure":{"jsonSchema":{"schema":"{}","name":"n"}}}},"additionalModelRequestFields":{"top_k":4,"thinking":{"type":"enabled","budget_tokens":5}}}`,
		`{"output":{"message":{"role":"assistant","content":[{"text":"x"}]}},"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":2,"cacheReadInputTokens":3},
			"trace":{"promptRouter":{"invokedModelId":"m"},"guardrail":{"inputAssessment":{"g":{"contentPolicy":{"filters":[{"type":"HATE","action":"BLOCKED"}]}}},"outputAssessments":{"g":[]}}}}`,
		`{"contentBlockDelta":{"contentBlockIndex":1,"delta":{"reasoningContent":{"text":"x","redactedContent":"aGk="}}}}`, `{"contentBlockStart":{"start":{"toolUse":{"toolUseId":"t"}}}}`,
		`{"metadata":{"usage":{"inputTokens":1},"trace":{}}}`, `{"error":{"__type":"x","message":"m"}}`, `{"messages":{}}`, `{"Messages":[]}`, `{"output":7}`, `{"messages":[{"content":[{"text":`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		jsonreadtest.Alike[wireRequest](t, doc)
		jsonreadtest.Alike[Answer](t, doc)
		jsonreadtest.Alike[event](t, doc)
	})
}
