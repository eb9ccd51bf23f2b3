package gemini

import (
	"testing"

	"github.com/evalfleet/evalfleet/pkg/json/jsonread/jsonreadtest"
)

// What is on the wire reads as encoding/json reads it, and is refused as it refuses it.
func FuzzWire(f *testing.F) {
	for _, doc := range []string{
		`{"contents":[{"role":"user","parts":[{"text":"a\n\"b\" \u00e9"},{"inlineData":{"mimeType":"image/png","data":"aGk="}}]},{"role":"model","parts":[{"text":"t","thought":true,
			"thoughtSignature":"s"},{"functionCall":{"id":"c","name":"f","args":{"a":1.0}}}]},{"parts":[{"functionResponse":{"name":"f","response":{"output":"x"},"parts":[{"text":""}]}}]}],
			"systemInstruction":{"parts":[{"text":"s"}]},"tools":[{"functionDeclarations":[]},{"googleSearch":{}}],"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}},
			"generationConfig":{"temperature":0.5,"topK":40.0,"maxOutputTokens":5,"stopSequences":["a"],"candidateCount":2,"responseLogprobs":true,"responseJsonSchema":{"a": 1.0},
			"thinkingConfig":{"thinkingBudget":0,"thinkingLevel":"LOW"}}}`,
		`{"candidates":[{"index":1,"content":{"role":"model","parts":[{"executableCode":{"language":"PYTHON","code":"x"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}},
			{"fileData":{"fileUri":"x"}}]},"finishReason":"STOP","safetyRatings":[{"category":"c","probability":"HIGH","blocked":true}],"logprobsResult":{"chosenCandidates":[{"token":"t",
			"logProbability":-0.5}],"topCandidates":[{"candidates":[]}]},"groundingMetadata":{"groundingChunks":[{"web":{"uri":"u","title":"t"}}],"groundingSupports":[{"segment":{"startIndex":0,
			"endIndex":1,"text":"t"},"groundingChunkIndices":[0]}]}}],"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":1,"cachedContentTokenCount":2}}`,
		`{"error":{"code":429,"message":"no","status":"RESOURCE_EXHAUSTED","details":[{"@type":"t","retryDelay":"7s"}]}}`, `{"contents":{}}`, `{"Contents":[]}`,
		`{"candidates":[{"content":7}]}`, `{"candidates":[{"content":{"parts":[{"text":`, `{"error":"text"}`, `{"contents":[{"parts":[{"text":null}]}]}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		jsonreadtest.Alike[wireRequest](t, doc)
		jsonreadtest.Alike[Answer](t, doc)
	})
}
