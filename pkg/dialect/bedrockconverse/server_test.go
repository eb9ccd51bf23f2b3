package bedrockconverse_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

func TestWhatARequestMustNotSayIsNamed(t *testing.T) {
	t.Parallel()
	const turn = `"messages":[{"role":"user","content":[{"text":"x"}]}]`
	for body, want := range map[string]string{
		`{}`:                              "messages: is required",
		`{"messages":[]}`:                 "messages: needs",
		`{"messages":5}`:                  "messages: must not be a number",
		`{"messages":[{"role":"user"}]}`:  "messages[0].content: is required",
		`{"messages":[{"role":"robot"}]}`: "messages[0].role",
		`{"messages":[{"role":"user","content":[{}]}]}`:                                                        "messages[0].content[0]",
		`{"messages":[{"role":"user","content":[{"document":{}}]}]}`:                                           "messages[0].content[0]: is of a kind",
		`{"messages":[{"role":"user","content":[{"image":{"format":"bmp"}}]}]}`:                                "content[0].image.format",
		`{"messages":[{"role":"user","content":[{"image":{"format":"png","source":{"s3Location":{}}}}]}]}`:     "image.source: is not fetched here",
		`{"messages":[{"role":"user","content":[{"image":{"format":"png","source":{"bytes":"no!"}}}]}]}`:       "image.source.bytes: is not in base64",
		`{"messages":[{"role":"user","content":[{"toolResult":{}}]}]}`:                                         "toolResult.toolUseId: is required",
		`{"messages":[{"role":"user","content":[{"toolResult":{"toolUseId":"t","status":"odd"}}]}]}`:           "toolResult.status",
		`{"messages":[{"role":"user","content":[{"toolResult":{"toolUseId":"t","content":[{"video":{}}]}}]}]}`: "toolResult.content[0]: only text",
		`{"messages":[{"role":"assistant","content":[{"toolUse":{"name":"f"}}]}]}`:                             "toolUse.toolUseId: is required",
		`{"messages":[{"role":"assistant","content":[{"toolUse":{"toolUseId":"t"}}]}]}`:                        "toolUse.name: is required",
		`{"messages":[{"role":"assistant","content":[{"guardContent":{}}]}]}`:                                  "messages[0].content[0]",
		`{` + turn + `,"system":[{"guardContent":{}}]}`:                                                        "system[0]: only text",
		`{` + turn + `,"guardrailConfig":{"guardrailIdentifier":"g"}}`:                                         "guardrailConfig",
		`{` + turn + `,"promptVariables":{"a":{}}}`:                                                            "promptVariables",
		`{` + turn + `,"inferenceConfig":{"maxTokens":0}}`:                                                     "inferenceConfig.maxTokens",
		`{` + turn + `,"toolConfig":{"tools":[{"systemTool":{"name":"x"}}]}}`:                                  "toolConfig.tools[0]: only tools with a toolSpec",
		`{` + turn + `,"toolConfig":{"tools":[{"toolSpec":{}}]}}`:                                              "toolSpec.name: is required",
		`{` + turn + `,"toolConfig":{"toolChoice":{"some":{}}}}`:                                               "toolChoice: is none of",
		`{` + turn + `,"toolConfig":{"toolChoice":{"any":{},"auto":{}}}}`:                                      "toolChoice: has more",
		`{` + turn + `,"toolConfig":{"toolChoice":{"tool":{}}}}`:                                               "toolChoice.tool.name",
		`{` + turn + `,"outputConfig":{"textFormat":{"type":"json_schema"}}}`:                                  "jsonSchema.schema: is required",
		`{` + turn + `,"outputConfig":{"textFormat":{"structure":{"jsonSchema":{"schema":"7"}}}}}`:             "jsonSchema.schema: is no JSON object",
		`{` + turn + `,"additionalModelRequestFields":7}`:                                                      "additionalModelRequestFields: must be an object",
		`{` + turn + `,"additionalModelRequestFields":{"anthropic_beta":[]}}`:                                  "additionalModelRequestFields.anthropic_beta",
		`{` + turn + `,"additionalModelRequestFields":{"top_k":"x"}}`:                                          "additionalModelRequestFields.top_k",
		`{` + turn + `,"additionalModelRequestFields":{"thinking":{"type":"some"}}}`:                           "thinking.type",
	} {
		_, err := bedrockconverse.Codec{}.ParseRequest([]byte(body))
		var said *dialect.RequestError
		require.ErrorAs(t, err, &said, body)
		assert.ErrorContains(t, err, want, body)
	}
}

// What the model alone takes is read as the option that it is.
func TestFieldsOfAModelAreOptions(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]*modelv1.GenerateConfig{
		`{"top_k":40}`:                                                          {TopK: new(int32(40))},
		`{"inferenceConfig":{"topK":40}}`:                                       {TopK: new(int32(40))},
		`{"thinking":{"type":"enabled","budget_tokens":9}}`:                     {ReasoningTokens: new(int64(9))},
		`{"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}}`:     {ReasoningEffort: new("low")},
		`{"thinking":{"type":"adaptive"}}`:                                      {ReasoningEffort: new("high")},
		`{"thinking":{"type":"disabled"}}`:                                      {ReasoningEffort: new("none")},
		`{"output_config":{"effort":"low"}}`:                                    {Effort: new("low")},
		`{"reasoning_effort":"low"}`:                                            {ReasoningEffort: new("low")},
		`{"reasoningConfig":{"type":"enabled","maxReasoningEffort":"low"}}`:     {ReasoningEffort: new("low")},
		`{"output_config":{"format":{"type":"json_schema","schema":{"a": 1}}}}`: {ResponseSchema: &modelv1.ResponseSchema{Name: "response", JsonSchema: `{"a": 1}`}},
		`null`: {},
	} {
		r, err := bedrockconverse.Codec{}.ParseRequest([]byte(`{"messages":[{"role":"user","content":[{"text":"x"}]}],"additionalModelRequestFields":` + fields + `}`))
		require.NoError(t, err, fields)
		assert.True(t, proto.Equal(want, r.Config), "%s: %v", fields, r.Config)
	}
}

// Reasoning that another vendor has sealed survives a client of this format.
func TestSealedReasoningOfOthersReturns(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]*contentv1.Content{
		"a seal with a summary": {Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "seal", Summary: new("So."), Redacted: true}}},
		"a seal alone":          {Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "seal", Redacted: true}}, InternalJson: `{"k":1}`},
		"redacted content": {
			Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Redacted: true}}, InternalJson: `{"bedrock_redacted_content":"b3BhcXVl"}`,
		},
		"a thought":            chat.ReasoningPart("Hm."),
		"one with a signature": {Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "Hm.", Signature: new("sig")}}},
	} {
		m := chat.Assistant("")
		m.Content = chat.ListContent(part, chat.TextPart("a"))
		output := chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_STOP)
		body, err := bedrockconverse.Codec{}.AppendResponse(nil, output, dialect.ResponseMeta{})
		require.NoError(t, err)
		_, message, _ := strings.Cut(string(body), `{"message":`)
		message, _, _ = strings.Cut(message, `},"stopReason"`)
		r, err := bedrockconverse.Codec{}.ParseRequest([]byte(`{"messages":[` + message + `]}`))
		require.NoError(t, err, message)
		assert.True(t, proto.Equal(m.GetContent(), r.Messages[0].GetContent()), "%s: %s", name, message)
	}
}

// The arguments of a call may have members of any name.
func TestAScanReadsNoArgumentsOfACall(t *testing.T) {
	t.Parallel()
	const arguments = `{"stopReason":"max_tokens","usage":{"inputTokens":99},"metadata":{"usage":{"inputTokens":99}},"messageStop":{"stopReason":"max_tokens"}}`
	for _, text := range []string{"", strings.Repeat("x", 20<<10)} {
		var facts dialect.Facts
		bedrockconverse.Codec{}.ScanUsage([]byte(`{"output":{"message":{"role":"assistant","content":[{"toolUse":{"toolUseId":"t","name":"f","input":`+arguments+`}},{"text":"`+text+`"},`+
			`{"toolUse":{"toolUseId":"u","name":"f","input":`+arguments+`}}]}},"stopReason":"tool_use","usage":{"inputTokens":1,"outputTokens":2}}`), &facts)
		assert.Equal(t, modelv1.StopReason_STOP_REASON_TOOL_CALLS, facts.StopReason)
		assert.Equal(t, int64(1), facts.Usage.GetInputTokens())
		assert.True(t, facts.Ended)
		assert.False(t, facts.Failed)
	}
}

// An image of an answer comes to a client of a stream too, once, whether it came as a piece or only in the end.
func TestAnImageIsStreamed(t *testing.T) {
	t.Parallel()
	m := chat.Assistant("")
	picture := chat.ImagePart("data:image/png;base64,aGk=")
	m.Content = chat.ListContent(chat.TextPart("So."), picture)
	output := chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_STOP)
	streams := map[string]string{"the vendor's": suite.Streams["an image"].Events}
	for i, pieces := range [][]*modelv1.GenerateDelta{nil, {dialect.TextDelta("So.")}, {dialect.TextDelta("So."), dialect.PartDelta(picture)}} {
		var wire bytes.Buffer
		w := bedrockconverse.Codec{}.NewStreamWriter(&wire, dialect.ResponseMeta{})
		for _, piece := range pieces {
			require.NoError(t, w.Write(piece))
		}
		require.NoError(t, w.Close(output))
		streams[fmt.Sprint("after pieces: ", i)] = wire.String()
	}
	for name, stream := range streams {
		reader := bedrockconverse.Codec{}.NewStreamReader()
		for event, err := range (bedrockconverse.Codec{}).ReadEvents(strings.NewReader(stream)) {
			require.NoError(t, err)
			_, err = reader.Add(event)
			require.NoError(t, err)
		}
		got, err := reader.Response().Output(nil)
		require.NoError(t, err)
		assert.True(t, proto.Equal(m.GetContent(), chat.FirstMessage(got).GetContent()), "%s: %v", name, got)
	}
}

// rest reads the events of a stream, and the error that ends it.
func rest(r io.Reader) (events int, err error) {
	for _, err := range (bedrockconverse.Codec{}).ReadEvents(r) {
		if err != nil {
			return events, err
		}
		events++
	}
	return events, nil
}

// A byte that is not as it was sent is noticed, wherever it is; a stream that is cut off is not corrupt.
func TestACorruptFrameIsAnError(t *testing.T) {
	t.Parallel()
	stream := frames(`messageStart {"role":"assistant"}`, `contentBlockDelta {"delta":{"text":"hi"}}`)
	for at := range len(stream) {
		broken := []byte(stream)
		broken[at] ^= 0x20
		_, err := rest(bytes.NewReader(broken))
		var malformed *dialect.MalformedError
		require.ErrorAs(t, err, &malformed, "byte %d", at)
		_, err = rest(strings.NewReader(stream[:at]))
		require.NoError(t, err, "cut at byte %d", at)
	}
	failed := errors.New("reset")
	events, err := rest(io.MultiReader(strings.NewReader(stream[:len(stream)-1]), iotest.ErrReader(failed)))
	assert.Equal(t, 1, events)
	require.ErrorIs(t, err, failed, "a connection that fails within a frame")
}

func TestFramesAreBounded(t *testing.T) {
	t.Parallel()
	begin := func(length, headers uint32) io.Reader {
		b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, length), headers)
		return bytes.NewReader(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
	}
	_, err := rest(begin(1<<30, 0))
	require.ErrorIs(t, err, dialect.ErrEventTooLarge)
	for _, lengths := range [][2]uint32{{0, 0}, {15, 0}, {100, 85}, {16, 1 << 31}} {
		_, err := rest(begin(lengths[0], lengths[1]))
		require.ErrorAs(t, err, new(*dialect.MalformedError), "%v", lengths)
	}
	_, err = rest(strings.NewReader(frame("event", ":event-type", "x", "no json")))
	require.ErrorAs(t, err, new(*dialect.MalformedError))
	_, err = rest(strings.NewReader(frame("gossip", ":event-type", "x", "{}")))
	require.ErrorAs(t, err, new(*dialect.MalformedError))
}

// Errors within a stream have the status that their type means; those that are not the request's fault may not recur.
func TestErrorsWithinAStreamHaveTheirMeaning(t *testing.T) {
	t.Parallel()
	for frame, want := range map[string]dialect.Error{
		frame("exception", ":exception-type", "throttlingException", `{"message":"m"}`):       {Message: "m", Type: "ThrottlingException", Status: 429, Transient: true},
		frame("exception", ":exception-type", "modelStreamErrorException", `{"message":"m"}`): {Message: "m", Type: "ModelStreamErrorException", Status: 424, Transient: true},
		frame("exception", ":exception-type", "validationException", `{"message":"m"}`):       {Message: "m", Type: "ValidationException", Status: 400},
		frame("exception", ":exception-type", "exceptionOfTomorrow", `plain`):                 {Message: "plain", Type: "ExceptionOfTomorrow", Transient: true},
		frame("error", ":error-code", "InternalError", ``):                                    {Message: `{"error":{"__type":"InternalError","message":""}}`, Type: "InternalError", Transient: true},
	} {
		for event, err := range (bedrockconverse.Codec{}).ReadEvents(strings.NewReader(frame)) {
			require.NoError(t, err)
			_, err = bedrockconverse.Codec{}.NewStreamReader().Add(event)
			said, ok := errors.AsType[*dialect.Error](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, want, *said)
		}
	}
}
