package gemini_test

import (
	"testing"
	"time"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
	"github.com/evalfleet/evalfleet/pkg/dialect/gemini"
)

// everyPart has a part of every kind that a model's turn may have, and one that is not known.
const everyPart = `[` + knownParts + `,{"partOfTomorrow":{}}]`

const knownParts = `{"text":"hm","thought":true},{"text":"a","thoughtSignature":"c2ln"},{"functionCall":{"id":"f1","name":"f","args":{"z":1.0}},"thoughtSignature":"czI="},` +
	`{"functionCall":{"id":"f2","name":"g"}},{"inlineData":{"mimeType":"image/png","data":"aGk="}},{"executableCode":{"language":"PYTHON","code":"print(1)"}},` +
	`{"codeExecutionResult":{"outcome":"OUTCOME_FAILED","output":"no"}},{"text":"","thoughtSignature":"czM="}`

const whole = `{"candidates":[
	{"content":{"role":"model","parts":[{"text":"Two and two.","thought":true},{"text":"Größe four.","thoughtSignature":"c2ln"},
		{"functionCall":{"id":"c1","name":"add","args":{"b": 1.0, "a": 2}},"thoughtSignature":"czI="},{"functionCall":{"id":"c2","name":"ping","args":{}}}]},
		"finishReason":"STOP","index":0,"logprobsResult":{"chosenCandidates":[{"token":"a","logProbability":-1},{"token":"b","logProbability":-2}],"topCandidates":[{},{}]}},
	{"content":{"role":"model","parts":[{"text":"Five."}]},"finishReason":"MAX_TOKENS","index":1}],
	"usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":2,"totalTokenCount":17},"modelVersion":"m","responseId":"x"}`

const events = `data: {"candidates":[{"content":{"role":"model","parts":[{"text":"Two ","thought":true}]},"index":0}],"modelVersion":"m","responseId":"x"}

data: {"candidates":[{"content":{"role":"model","parts":[{"text":"and two.","thought":true},{"text":"Grö"}]},"index":0},{"content":{"parts":[{"text":"Fi"}]},"index":1}],"usageMetadata":{"promptTokenCount":10,"totalTokenCount":12}}

data: {"candidates":[{"content":{"parts":[{"text":"ße four."}]},"index":0,"logprobsResult":{"chosenCandidates":[{"token":"a","logProbability":-1}],"topCandidates":[{}]}}]}

data: {"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"c2ln"}]},"index":0},{"content":{"parts":[{"text":"ve."}]},"finishReason":"MAX_TOKENS","index":1}]}

data: {"candidates":[{"content":{"parts":[{"functionCall":{"id":"c1","name":"add","args":{"b": 1.0, "a": 2}},"thoughtSignature":"czI="},{"functionCall":{"id":"c2","name":"ping","args":{}}}]},"index":0}]}

data: {"candidates":[{"content":{"parts":[{"text":""}]},"finishReason":"STOP","index":0,"logprobsResult":{"chosenCandidates":[{"token":"b","logProbability":-2}],"topCandidates":[{}]}}],"usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":2,"totalTokenCount":17}}

`

var suite = dialecttest.Harness{
	Codec: gemini.Codec{}, NoCacheWrites: true, WholeCalls: true, NoLastEvent: true,
	Requests: []string{
		`{"contents":[{"parts":[{"text":"x"}]}],"tools":[{"google_search":{"exclude_domains":["a"],"timeRangeFilter":{"startTime":"x"}}},{"googleSearchRetrieval":{}},{"codeExecution":{},"urlContext":{}}]}`,
		`{"contents":[{"parts":[{"text":"x"},{"inlineData":{"mimeType":"image/png","data":"aGk="}}]},{"role":"model","parts":[` + knownParts + `]},` +
			`{"role":"user","parts":[{"functionResponse":{"id":"f1","name":"f","response":{"result":[1]},"parts":[{"inlineData":{"mimeType":"image/png","data":"aGk="}}]}},` +
			`{"functionResponse":{"name":"g","response":{"error":"no"}}},{"text":"y"}]}],"systemInstruction":{"parts":[{"text":"a"},{"text":"b"}]}}`,
		`{"contents":[{"role":"user","parts":[{"text":"x_y"}]}],"tools":[{"function_declarations":[{"name":"f","parameters":{"type":"OBJECT","properties":{"a_b":{"type":"STRING"}}}}]}],` +
			`"tool_config":{"function_calling_config":{"mode":"ANY","allowed_function_names":["f"]}},"generation_config":{"thinking_config":{"thinking_level":"LOW"},"response_schema":{"type":"STRING"}}}`,
	},
	Responses: []string{
		whole, `{"candidates":[{"content":{"parts":` + everyPart + `},"finishReason":"STOP","groundingMetadata":{"groundingChunks":[{"web":{"uri":"u","title":"t"}}],` +
			`"groundingSupports":[{"segment":{"endIndex":1,"text":"a"},"groundingChunkIndices":[0,-1,9]},{"segment":{"startIndex":-1},"groundingChunkIndices":[0]}]}}]}`,
		`{"promptFeedback":{"blockReason":"SAFETY","safetyRatings":[{"category":"c","probability":"HIGH","blocked":true}]}}`, `{"usageMetadata":{"promptTokenCount":5}}`,
		`{"candidates":[{"content":{"parts":[{"partOfTomorrow":{}}]},"finishReason":"STOP","groundingMetadata":{"groundingSupports":[{"segment":{"partIndex":0,"endIndex":1}}]}}]}`,
	},
	Streams: map[string]dialecttest.Stream{
		"two candidates": {Events: events, Body: whole},
		"one event": {
			Events: "data: " + `{"candidates":[{"content":{"parts":[{"text":"Hi."}]},"finishReason":"STOP"}]}` + "\r\n\r\n",
			Body:   `{"candidates":[{"content":{"parts":[{"text":"Hi."}]},"finishReason":"STOP"}]}`,
		},
	},
	Errors: map[string]dialect.Error{
		`{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}`:   {Message: "m", Type: "UNAVAILABLE", Status: 503},
		`[{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}]`: {Message: "m", Type: "UNAVAILABLE", Status: 503},
		`{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure"},` +
			`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}`: {Message: "m", Type: "RESOURCE_EXHAUSTED", Status: 429, RetryAfter: 34500 * time.Millisecond},
		`{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}`: {
			Message: "m", Type: "INVALID_ARGUMENT", Code: "API_KEY_INVALID", Status: 400,
		},
		`{"error":{"code":"503","message":"m","status":"UNAVAILABLE"}}`: {Message: "m", Type: "UNAVAILABLE", Status: 503},
		`{"error":{"code":"busy","message":"m","details":[7,{"reason":5,"retryDelay":7},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}]}}`: {
			Message: "m", RetryAfter: 7 * time.Second,
		},
		`{"error":{"code":503,"message":"m","details":"none"}}`: {Message: "m", Status: 503},
		`{"error":"plain \"text\""}`:                            {Message: `plain "text"`},
		`{"detail":"x"}`:                                        {Message: `{"detail":"x"}`},
	},
	Malformed:       []string{`{"candidates":7}`, `{"candidates":[{"content":{"parts":7}}]}`, `[{"candidates":[]}]`},
	MalformedEvents: []string{`{"candidates":[{"index":-1}]}`, `{"candidates":[{"index":2000000000}]}`},
}

func TestSuite(t *testing.T) {
	t.Parallel()
	dialecttest.Run(t, suite)
}

func FuzzParseRequest(f *testing.F)   { dialecttest.FuzzParseRequest(f, suite) }
func FuzzDecodeResponse(f *testing.F) { dialecttest.FuzzDecodeResponse(f, suite) }
func FuzzStream(f *testing.F)         { dialecttest.FuzzStream(f, suite) }
func FuzzScanUsage(f *testing.F)      { dialecttest.FuzzScanUsage(f, suite) }
