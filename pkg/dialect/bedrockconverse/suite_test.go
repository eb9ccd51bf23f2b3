package bedrockconverse_test

import (
	"bytes"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
)

// frame is a frame of a stream, as the vendor sends it.
func frame(kind, typeHeader, name, payload string) string {
	var b bytes.Buffer
	err := eventstream.NewEncoder().Encode(&b, eventstream.Message{Headers: eventstream.Headers{
		{Name: typeHeader, Value: eventstream.StringValue(name)},
		{Name: ":content-type", Value: eventstream.StringValue("application/json")},
		{Name: ":message-type", Value: eventstream.StringValue(kind)},
	}, Payload: []byte(payload)})
	if err != nil {
		panic(err)
	}
	return b.String()
}

// frames are the frames of events, each given as `type payload`.
func frames(events ...string) string {
	var all strings.Builder
	for _, event := range events {
		name, payload, _ := strings.Cut(event, " ")
		all.WriteString(frame("event", ":event-type", name, payload))
	}
	return all.String()
}

// extend extends the payloads of a stream's events.
func extend(events string, extended func(object string) string) string {
	var all []string
	for event, err := range (bedrockconverse.Codec{}).ReadEvents(strings.NewReader(events)) {
		if err != nil {
			panic(err)
		}
		_, payload, _ := strings.Cut(string(event.Data), ":")
		all = append(all, event.Type+" "+extended(strings.TrimSuffix(payload, "}")))
	}
	return frames(all...)
}

const whole = `{"metrics":{"latencyMs":5},"output":{"message":{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"Two and two.","signature":"c2ln"}}},
	{"text":"Größe four."},{"toolUse":{"toolUseId":"c1","name":"add","input":{"b": 1.0, "a": 2}}},{"toolUse":{"toolUseId":"c2","name":"ping","input":{}}}]}},
	"stopReason":"tool_use","usage":{"inputTokens":10,"outputTokens":5,"totalTokens":21,"cacheReadInputTokens":4,"cacheWriteInputTokens":2}}`

var events = frames(
	`messageStart {"p":"abc","role":"assistant"}`,
	`contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"Two "}},"p":"ab"}`,
	`contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"and two."}}}`,
	`contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"c2ln"}}}`,
	`contentBlockStop {"contentBlockIndex":0}`,
	`contentBlockDelta {"contentBlockIndex":1,"delta":{"text":"Grö"}}`,
	`contentBlockDelta {"contentBlockIndex":1,"delta":{"text":"ße four."}}`,
	`contentBlockStop {"contentBlockIndex":1}`,
	`contentBlockStart {"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"c1","name":"add"}}}`,
	`contentBlockDelta {"contentBlockIndex":2,"delta":{"toolUse":{"input":"{\"b\": 1.0,"}}}`,
	`contentBlockDelta {"contentBlockIndex":2,"delta":{"toolUse":{"input":" \"a\": 2}"}}}`,
	`contentBlockStop {"contentBlockIndex":2}`,
	`contentBlockStart {"contentBlockIndex":3,"start":{"toolUse":{"toolUseId":"c2","name":"ping"}}}`,
	`contentBlockStop {"contentBlockIndex":3}`,
	`messageStop {"stopReason":"tool_use"}`,
	`metadata {"metrics":{"latencyMs":5},"usage":{"inputTokens":10,"outputTokens":5,"totalTokens":21,"cacheReadInputTokens":4,"cacheWriteInputTokens":2}}`,
)

var suite = dialecttest.Harness{
	Codec: bedrockconverse.Codec{}, Nameless: true, NoReasoningTokens: true, NoneLeavesToolsOut: true, Extend: extend,
	Requests: []string{
		`{"messages":[{"role":"user","content":[{"text":"x"},{"image":{"format":"png","source":{"bytes":"aGk="}}},{"cachePoint":{"type":"default"}}]},
			{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"hm","signature":"s"}}},{"reasoningContent":{"redactedContent":"b3A="}},{"text":"a"},
				{"toolUse":{"toolUseId":"t1","name":"f","input":{"z":1.0}}},{"toolUse":{"toolUseId":"t2","name":"g","input":{}}}]},
			{"role":"user","content":[{"toolResult":{"toolUseId":"t1","content":[{"text":"one"},{"json":{"a":1}},{"image":{"format":"gif","source":{"bytes":"aGk="}}}],"status":"success"}},
				{"toolResult":{"toolUseId":"t2","content":[{"text":"no"}],"status":"error"}},{"text":"y"}]}],
			"system":[{"text":"a"},{"cachePoint":{"type":"default"}},{"text":"b"}],"requestMetadata":{"k":"v"}}`,
		`{"messages":[{"role":"user","content":[{"text":"x"}]}],"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{"type":"object"}}}},{"cachePoint":{"type":"default"}}],
			"toolChoice":{"any":{}}},"inferenceConfig":{"maxTokens":5,"temperature":0.5,"topP":0.9,"stopSequences":["END"]},
			"additionalModelRequestFields":{"top_k":40,"thinking":{"type":"adaptive"},"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"a": 1.0}}}}}`,
		`{"messages":[{"role":"assistant","content":[]}],"outputConfig":{"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"schema":"{\"a\": 1.0}","name":"n"}}}}}`,
	},
	Responses: []string{
		whole,
		`{"output":{"message":{"role":"assistant","content":[{"reasoningContent":{"redactedContent":"b3BhcXVl"}},{"text":""},{"image":{"format":"png","source":{"bytes":"aGk="}}},
			{"citationsContent":{"content":[{"text":"cited"}],"citations":[]}},{"blockOfTomorrow":{}}]}},"stopReason":"guardrail_intervened","usage":{"inputTokens":-1},
			"trace":{"promptRouter":{"invokedModelId":"arn:x"},"guardrail":{"inputAssessment":{"g":{"contentPolicy":{"filters":[{"type":"HATE","confidence":"HIGH","action":"BLOCKED"}]}}},
			"outputAssessments":{"g":[{"topicPolicy":{"topics":[{"name":"n","detected":true}]}}]}}}}`,
		`{"output":{"message":{}}}`,
		`{"output":{"message":{"content":[{"toolUse":{"toolUseId":"t","name":"f","input":"no json"}}]}},"stopReason":"tool_use"}`,
	},
	Streams: map[string]dialecttest.Stream{
		"a stream": {Events: events, Body: whole},
		"redacted": {
			Events: frames(
				`messageStart {"role":"assistant"}`,
				`contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"redactedContent":"b3Bh"}}}`,
				`contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"redactedContent":"cXVl"}}}`, `contentBlockStop {"contentBlockIndex":0}`,
				`contentBlockDelta {"contentBlockIndex":1,"delta":{"text":"Hi."}}`, `messageStop {"stopReason":"end_turn"}`, `metadata {}`,
			),
			Body: `{"output":{"message":{"content":[{"reasoningContent":{"redactedContent":"b3BhcXVl"}},{"text":"Hi."}]}},"stopReason":"end_turn"}`,
		},
		"an image": {
			Events: frames(
				`messageStart {"role":"assistant"}`, `contentBlockDelta {"contentBlockIndex":0,"delta":{"text":"So."}}`, `contentBlockStop {"contentBlockIndex":0}`,
				`contentBlockStart {"contentBlockIndex":1,"start":{"image":{"format":"png"}}}`,
				`contentBlockDelta {"contentBlockIndex":1,"delta":{"image":{"source":{"bytes":"aA=="}}}}`,
				`contentBlockDelta {"contentBlockIndex":1,"delta":{"image":{"source":{"bytes":"aQ=="}}}}`, `contentBlockStop {"contentBlockIndex":1}`,
				`messageStop {"stopReason":"end_turn"}`, `metadata {}`,
			),
			Body: `{"output":{"message":{"content":[{"text":"So."},{"image":{"format":"png","source":{"bytes":"aGk="}}}]}},"stopReason":"end_turn"}`,
		},
	},
	Errors: map[string]dialect.Error{
		`{"message":"m"}`: {Message: "m"},
		`{"Message":"m"}`: {Message: "m"},
		`{"__type":"com.amazon.x#ThrottlingException","message":"m"}`: {Message: "m", Type: "ThrottlingException"},
		`{"__type":"ThrottlingException:http://x/","message":7}`:      {Message: `{"__type":"ThrottlingException:http://x/","message":7}`, Type: "ThrottlingException"},
	},
	Malformed: []string{`{"output":7}`, `{"output":{}}`, `{"output":{"message":null}}`, `{"output":{"message":{"content":7}}}`},
	MalformedEvents: []string{
		`{"contentBlockDelta":{"contentBlockIndex":-1}}`, `{"contentBlockStart":{"contentBlockIndex":2000000000}}`, `{"contentBlockStop":{"contentBlockIndex":4096}}`,
		`{"contentBlockDelta":{"delta":{"reasoningContent":{"redactedContent":"no!"}}}}`,
	},
}

func TestSuite(t *testing.T) {
	t.Parallel()
	dialecttest.Run(t, suite)
}

func FuzzParseRequest(f *testing.F)   { dialecttest.FuzzParseRequest(f, suite) }
func FuzzDecodeResponse(f *testing.F) { dialecttest.FuzzDecodeResponse(f, suite) }
func FuzzStream(f *testing.F)         { dialecttest.FuzzStream(f, suite) }
func FuzzScanUsage(f *testing.F)      { dialecttest.FuzzScanUsage(f, suite) }

// FuzzEvents is FuzzStream below the checksums of frames: each line is the type and the payload of one.
func FuzzEvents(f *testing.F) {
	h := suite
	h.Codec, h.Streams = lines{}, map[string]dialecttest.Stream{}
	for name, s := range suite.Streams {
		var text strings.Builder
		for event, err := range (bedrockconverse.Codec{}).ReadEvents(strings.NewReader(s.Events)) {
			if err != nil {
				f.Fatal(err)
			}
			_, payload, _ := strings.Cut(string(event.Data), ":")
			text.WriteString(event.Type + " " + strings.TrimSuffix(payload, "}") + "\n")
		}
		h.Streams[name] = dialecttest.Stream{Events: text.String()}
	}
	dialecttest.FuzzStream(f, h)
}

// lines reads frames from lines too.
type lines struct{ bedrockconverse.Codec }

func (l lines) ReadEvents(r io.Reader) iter.Seq2[dialect.Event, error] {
	all, _ := io.ReadAll(r)
	if len(all) > 0 && all[0] != 0 { // A frame begins with a length below 2^24.
		all = []byte(frames(strings.Split(string(all), "\n")...))
	}
	return l.Codec.ReadEvents(bytes.NewReader(all))
}
