package openaichat_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

var meta = dialect.ResponseMeta{ID: "chatcmpl-1", Model: "mockllm/model", Created: 1700000000, IncludeUsage: true}

func TestARequestIsReadAsItWasMeant(t *testing.T) {
	t.Parallel()
	r, err := openaichat.Codec{}.ParseRequest([]byte(`{
		"model": "openai/gpt-4o", "stream": true, "stream_options": {"include_usage": true}, "user": "u", "metadata": {"a": "b"}, "store": true,
		"messages": [
			{"role": "developer", "content": "Be brief."},
			{"role": "user", "content": [
				{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
				{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
				{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}}]},
			{"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"x\": 1.0}"}}]},
			{"role": "tool", "tool_call_id": "c1", "content": "2"},
			{"role": "assistant", "content": "hello", "reasoning_content": "hm"}
		],
		"tools": [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"b": 1.50, "a": {}}, "strict": true}}, {"type": "function", "function": {"name": "bare"}}],
		"tool_choice": {"type": "function", "function": {"name": "add"}}, "parallel_tool_calls": false,
		"max_tokens": 5, "max_completion_tokens": 6, "temperature": 0.5, "top_p": 0.9, "stop": "END", "seed": 7, "n": 2, "logit_bias": {"5": 1}, "logprobs": true, "top_logprobs": 2,
		"frequency_penalty": 0.1, "presence_penalty": 0.2, "reasoning_effort": "low", "verbosity": "high",
		"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": true}}
	}`))
	require.NoError(t, err)
	assert.Equal(t, "openai/gpt-4o", r.Model)
	assert.True(t, r.Stream)
	assert.True(t, r.IncludeUsage)
	require.Len(t, r.Messages, 5)
	assert.Equal(t, modelv1.Role_ROLE_SYSTEM, r.Messages[0].GetRole())
	parts := r.Messages[1].GetContent().GetList().GetParts()
	require.Len(t, parts, 4)
	assert.Equal(t, "data:image/png;base64,AA==", parts[1].GetImage().GetMedia().GetUri())
	assert.Equal(t, "data:audio/wav;base64,AAAA", parts[2].GetAudio().GetMedia().GetUri())
	assert.Equal(t, "a.pdf", parts[3].GetDocument().GetFilename())
	assert.Equal(t, `{"x": 1.0}`, r.Messages[2].GetToolCalls()[0].GetArgumentsJson())
	assert.Equal(t, "add", r.Messages[3].GetFunction(), "the tool's name is that of the call")
	assert.Equal(t, []string{"c1"}, r.Messages[3].GetToolCallIds())
	assert.Equal(t, "hm", r.Messages[4].GetContent().GetList().GetParts()[0].GetReasoning().GetReasoning())
	assert.Equal(t, `{"b": 1.50, "a": {}}`, r.Tools[0].GetParametersJson(), "schemas stay as they are written")
	assert.JSONEq(t, `{"type": "object", "properties": {}}`, r.Tools[1].GetParametersJson())
	assert.Equal(t, "add", r.Choice.GetFunction())
	assert.True(t, proto.Equal(&modelv1.GenerateConfig{
		MaxTokens: new(int64(6)), Temperature: new(0.5), TopP: new(0.9), FrequencyPenalty: new(0.1), PresencePenalty: new(0.2), Seed: new(int64(7)), NumChoices: new(int32(2)),
		Logprobs: new(true), TopLogprobs: new(int32(2)), ParallelToolCalls: new(false), ReasoningEffort: new("low"), Verbosity: new("high"),
		StopSeqs: &modelv1.StringList{Values: []string{"END"}}, LogitBias: &modelv1.LogitBias{Values: map[int64]float64{5: 1}},
		ResponseSchema: &modelv1.ResponseSchema{Name: "s", JsonSchema: `{"type": "object"}`, Strict: new(true)},
	}, r.Config), "%v", r.Config)
}

func TestSoundsHaveTheirTypes(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"wav": "data:audio/wav;base64,AAAA", "mp3": "data:audio/mpeg;base64,AAAA"} {
		r, err := openaichat.Codec{}.ParseRequest([]byte(`{"model": "m", "messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "` + format + `"}}]}]}`))
		require.NoError(t, err)
		assert.Equal(t, want, r.Messages[0].GetContent().GetList().GetParts()[0].GetAudio().GetMedia().GetUri())
	}
}

// A call that is of no function, such as one with a text, is none.
func TestACallHasAFunction(t *testing.T) {
	t.Parallel()
	r, err := openaichat.Codec{}.ParseRequest([]byte(`{"model": "m", "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "tool_calls": [
		{"id": "a", "type": "custom", "custom": {"name": "g", "input": "x"}}, {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]}`))
	require.NoError(t, err)
	require.Len(t, r.Messages[1].GetToolCalls(), 1)
	assert.Equal(t, "f", r.Messages[1].GetToolCalls()[0].GetFunction())
}

// What cannot change an answer, and what says no more than the default, is passed over.
func TestWhatChangesNoAnswerIsPassedOver(t *testing.T) {
	t.Parallel()
	for _, member := range []string{
		`"user": "u"`, `"metadata": {"a": "b"}`, `"store": true`, `"service_tier": "flex"`, `"prediction": {"type": "content", "content": "x"}`, `"prompt_cache_key": "k"`,
		`"safety_identifier": "s"`, `"response_format": {"type": "text"}`, `"response_format": null`, `"modalities": ["text"]`, `"modalities": null`, `"web_search_options": null`,
		`"functions": null, "tools": []`, `"function_call": null`, `"a_member_of_tomorrow": {"x": [1]}`,
	} {
		_, err := openaichat.Codec{}.ParseRequest([]byte(`{"model": "m", "messages": [{"role": "user", "content": "x"}], ` + member + `}`))
		require.NoError(t, err, member)
	}
}

func TestWhatARequestMustNotSayIsNamed(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`[]`:                             "no JSON object",
		`{"messages": []}`:               "model",
		`{"model": "m"}`:                 "messages",
		`{"model": 5, "messages": []}`:   "model: must not be a number",
		`{"model": "m", "messages": {}}`: "messages: must not be an object",
		`{"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "/etc/passwd"}}]}]}`: "messages[0].content[0].image_url.url: is neither data:",
		`{"model": "m", "messages": [{"role": "user"}]}`:                                                                                          "messages[0].content",
		`{"model": "m", "messages": [{"role": "critic", "content": "x"}]}`:                                                                        "messages[0].role",
		`{"model": "m", "messages": [{"role": "user", "content": [{"type": "video"}]}]}`:                                                          "messages[0].content[0].type",
		`{"model": "m", "messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}`:                                 "file_data",
		`{"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,no!"}}]}]}`:   "messages[0].content[0].image_url.url: is not in base64",
		`{"model": "m", "messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "no!", "format": "wav"}}]}]}`:   "messages[0].content[0].input_audio.data: is not in base64",
		`{"model": "m", "messages": [{"role": "user", "content": [{"type": "file", "file": {"file_data": "data:application/pdf;base64,no!"}}]}]}`: "messages[0].content[0].file.file_data: is not in base64",
		`{"model": "m", "messages": [], "tools": [{"type": "custom"}]}`:                                                                           "tools[0].type",
		`{"model": "m", "messages": [], "tools": [{"type": "function"}]}`:                                                                         "tools[0].function.name",
		`{"model": "m", "messages": [], "tool_choice": "any"}`:                                                                                    "tool_choice",
		`{"model": "m", "messages": [], "tool_choice": {"type": "allowed_tools"}}`:                                                                "tool_choice",
		`{"model": "m", "messages": [], "stop": 5}`:                                                                                               "stop",
		`{"model": "m", "messages": [], "logit_bias": {"x": 1}}`:                                                                                  "logit_bias",
		`{"model": "m", "messages": [], "response_format": {"type": "json_schema"}}`:                                                              "response_format",
		`{"model": "m", "messages": []}`:                                                                                                          "messages",
		`{"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 0}`:                                                         "max_tokens",
		`{"model": "m", "messages": [{"role": "user", "content": "x"}], "max_completion_tokens": -1}`:                                             "max_completion_tokens",
		`{"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 1000000}`:                                                            "1 to 1024",
		`{"model": "m", "messages": [{"role": "user", "content": "x"}], "response_format": {"type": "jsonobject"}}`:                               "json_schema",
		`{"model": "m", "messages": [{"role": "user", "content": "x"}], "response_format": {"type": "grammar"}}`:                                  "response_format.type",
		`{"model": "m", "messages": [{"role": "user", "content": "x"}], "modalities": ["text", "audio"]}`:                                         "modalities",
		`{"model": "m", "messages": [{"role": "user", "content": "x"}], "web_search_options": {"search_context_size":1}}`:                         "web_search_options",
		`{"model": "m", "messages": [{"role": "user", "content": "x"}], "audio": {"voice": "a"}}`:                                                 "audio",
	} {
		_, err := openaichat.Codec{}.ParseRequest([]byte(body))
		var said *dialect.RequestError
		require.ErrorAs(t, err, &said, body)
		assert.ErrorContains(t, err, want, body)
	}
}

// Reasoning between tags becomes a part of its own; without other text there is no other part.
func TestReasoningBetweenTags(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		`"<think>\nhm\n</think>\nso"`: "hm|so",
		`"<think>\nhm\n</think>"`:     "hm|",
		`[{"type":"text","text":"<think>\nhm\n</think>"},{"type":"text","text":"so"}]`: "hm|so",
	} {
		r, err := openaichat.Codec{}.ParseRequest([]byte(`{"model":"m","messages":[{"role":"assistant","content":` + content + `}]}`))
		require.NoError(t, err, content)
		parts := r.Messages[0].GetContent().GetList().GetParts()
		said, rest, _ := strings.Cut(want, "|")
		assert.Equal(t, said, parts[0].GetReasoning().GetReasoning(), content)
		if rest == "" {
			assert.Len(t, parts, 1, content)
			continue
		}
		require.Len(t, parts, 2, content)
		assert.Equal(t, rest, parts[1].GetText().GetText(), content)
	}
}

// outputs are answers of all kinds, each as it must come back when a client reads what a server wrote.
func outputs() map[string]*modelv1.ModelOutput {
	usage := &modelv1.ModelUsage{
		InputTokens: 5, OutputTokens: 7, TotalTokens: 15, InputTokensCacheRead: new(int64(3)), InputTokensCacheWrite: new(int64(0)), ReasoningTokens: new(int64(2)),
	}
	signed := chat.ReasoningPart("thought")
	signed.GetReasoning().Signature = new("sig==")
	sealed := &contentv1.Content{InternalJson: `{"id": "rs_1"}`, Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "b3BhcXVl", Redacted: true, Summary: new("short")}}}
	two := chattest.Says("m", "One.")
	two.Choices = append(two.Choices, chattest.Says("m", "Two.").GetChoices()[0])
	two.Choices[1].StopReason = modelv1.StopReason_STOP_REASON_MAX_TOKENS
	calls := chat.MessageOutput("m", chat.Assistant("", chat.Call("c1", "add", `{"x": 1.0}`), chat.Call("c2", "ping", "{}")), modelv1.StopReason_STOP_REASON_TOOL_CALLS)
	answer := func(parts ...*contentv1.Content) *modelv1.ModelOutput {
		m := chat.Assistant("")
		m.Content = chat.ListContent(parts...)
		return chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_STOP)
	}
	all := map[string]*modelv1.ModelOutput{
		"text": chattest.Says("m", "Größe \"quoted\"\n"), "calls": calls, "two choices": two, "reasoning": answer(chat.ReasoningPart("hm"), chat.TextPart("so")),
		"signed": answer(signed, chat.TextPart("so")), "sealed": answer(sealed, chat.TextPart("so")),
	}
	for _, output := range all {
		output.Usage = usage
	}
	return all
}

// again is a client that reads an answer and sends its first message back, as the server reads it.
func again(t *testing.T, answer []byte) *modelv1.ChatMessage {
	t.Helper()
	var whole struct {
		Choices []struct{ Message json.RawMessage }
	}
	require.NoError(t, json.Unmarshal(answer, &whole))
	body, err := json.Marshal(map[string]any{"model": "m", "messages": []any{whole.Choices[0].Message}})
	require.NoError(t, err)
	r, err := openaichat.Codec{}.ParseRequest(body)
	require.NoError(t, err)
	return r.Messages[0]
}

func TestAnAnswerIsReadBackAndCanBeSentAgain(t *testing.T) {
	t.Parallel()
	for name, output := range outputs() {
		answer, err := openaichat.Codec{}.AppendResponse(nil, output, meta)
		require.NoError(t, err, name)
		got, err := decode(string(answer))
		require.NoError(t, err, name)
		require.Len(t, got.GetChoices(), len(output.GetChoices()), name)
		for i, choice := range output.GetChoices() {
			assert.Equal(t, chat.Text(choice.GetMessage()), chat.Text(got.GetChoices()[i].GetMessage()), name)
			assert.Equal(t, choice.GetStopReason(), got.GetChoices()[i].GetStopReason(), name)
		}
		assert.True(t, proto.Equal(output.GetUsage(), got.GetUsage()), "%s: %v", name, got.GetUsage())
		first := output.GetChoices()[0].GetMessage()
		sent := again(t, answer)
		assert.Equal(t, chat.Text(first), chat.Text(sent), name)
		for i, call := range first.GetToolCalls() {
			assert.True(t, proto.Equal(call, sent.GetToolCalls()[i]), "%s: %v", name, sent)
		}
		if want := first.GetContent().GetList(); want != nil && name != "reasoning" {
			assert.True(t, proto.Equal(want, sent.GetContent().GetList()), "%s: what a provider needs to take reasoning again survives a client: %v", name, sent)
		}
	}
	_, err := openaichat.Codec{}.AppendResponse(nil, &modelv1.ModelOutput{}, meta)
	require.ErrorIs(t, err, dialect.ErrNoChoices)
}

func TestAStreamWithoutUsageSaysNothingOfIt(t *testing.T) {
	t.Parallel()
	var wire bytes.Buffer
	plain := meta
	plain.IncludeUsage = false
	require.NoError(t, openaichat.Codec{}.NewStreamWriter(&wire, plain).Close(outputs()["text"]))
	assert.NotContains(t, wire.String(), "usage")
	assert.True(t, strings.HasSuffix(wire.String(), "data: [DONE]\n\n"))
}

func TestErrorsReadBack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		said       dialect.Failure
		kind, code string
	}{
		{dialect.Failure{Status: http.StatusBadRequest}, "invalid_request_error", ""},
		{dialect.Failure{Status: http.StatusUnauthorized}, "invalid_request_error", "invalid_api_key"},
		{dialect.Failure{Status: http.StatusNotFound}, "invalid_request_error", ""},
		{dialect.Failure{Status: http.StatusNotFound, Cause: dialect.UnknownModel}, "invalid_request_error", "model_not_found"},
		{dialect.Failure{Status: http.StatusTooManyRequests}, "rate_limit_error", "rate_limit_exceeded"},
		{dialect.Failure{Status: http.StatusTooManyRequests, Cause: dialect.QuotaSpent}, "insufficient_quota", "insufficient_quota"},
		{dialect.Failure{Status: http.StatusBadRequest, Cause: dialect.TooLong, Param: "messages"}, "invalid_request_error", "context_length_exceeded"},
		{dialect.Failure{Status: http.StatusBadRequest, Cause: dialect.Missing, Param: "model"}, "invalid_request_error", "missing_required_parameter"},
		{dialect.Failure{Status: http.StatusBadRequest, Cause: dialect.Wrong, Param: "n"}, "invalid_request_error", "invalid_value"},
		{dialect.Failure{Status: http.StatusBadRequest, Cause: dialect.Unsupported, Param: "n"}, "invalid_request_error", "unsupported_parameter"},
		{dialect.Failure{Status: http.StatusBadGateway}, "api_error", ""},
	} {
		tt.said.Message = "m"
		body := openaichat.Codec{}.AppendError(nil, tt.said)
		said := openaichat.Codec{}.DecodeError(body)
		assert.Equal(t, []string{"m", tt.kind, tt.code}, []string{said.Message, said.Type, said.Code})
		if tt.said.Param != "" {
			assert.Contains(t, string(body), `"param":"`+tt.said.Param+`"`)
		}
	}
}

func TestWhatEndsAStream(t *testing.T) {
	t.Parallel()
	var facts dialect.Facts
	for _, doc := range []string{"", "{", `{"usage":null}`, `{"choices":[{"finish_reason":null}]}`, `{"choices":[{"finish_reason":"`} {
		openaichat.Codec{}.ScanUsage([]byte(doc), &facts)
	}
	assert.Equal(t, dialect.Facts{Pieces: 5}, facts)
	openaichat.Codec{}.ScanUsage([]byte(`{"choices":[{"message":{"content":"\"finish_reason\":\"length\""},"finish_reason": "stop"}]}`), &facts)
	assert.Equal(t, modelv1.StopReason_STOP_REASON_STOP, facts.StopReason, "what a model says is no reason")
	assert.True(t, facts.Ended, "some servers leave out the last event")
	facts = dialect.Facts{}
	openaichat.Codec{}.ScanUsage([]byte("[DONE]"), &facts)
	assert.Equal(t, dialect.Facts{Ended: true}, facts)
}

// However long an answer is, and wherever it says its usage, that is seen.
func TestScanUsageAtALongAnswer(t *testing.T) {
	t.Parallel()
	choices := `"choices":[{"message":{"content":"` + strings.Repeat(`\"usage\":{}`, 2000) + `"},"finish_reason":"length"}]`
	for _, answer := range []string{
		`{"id":"x",` + choices + `,"usage":{"prompt_tokens":5}}`,
		`{"id":"x","usage":{"prompt_tokens":5},` + choices + `}`,
		`{` + choices + `,"id":"x","usage":{"prompt_tokens":5},"more":[{` + choices + `}]}`,
	} {
		var facts dialect.Facts
		openaichat.Codec{}.ScanUsage([]byte(answer), &facts)
		assert.Equal(t, "x", facts.ID)
		assert.Equal(t, modelv1.StopReason_STOP_REASON_MAX_TOKENS, facts.StopReason)
		assert.Equal(t, int64(5), facts.Usage.GetInputTokens())
	}
}

// Reasoning between tags is read wherever a text of the assistant holds it; a refusal is no place for it.
func TestReasoningBetweenTagsIsReadInPartsToo(t *testing.T) {
	t.Parallel()
	r, err := openaichat.Codec{}.ParseRequest([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"<think>mine</think>"}]},
		{"role":"assistant","content":[{"type":"text","text":"<think>r</think>a"},{"type":"text","text":"b"},{"type":"refusal","refusal":"<think>no</think>"}]}]}`))
	require.NoError(t, err)
	for _, m := range r.Messages {
		m.Id = ""
	}
	assert.JSONEq(t, `[{"role":"user","content":[{"type":"text","text":"<think>mine</think>"}]},
		{"role":"assistant","source":"generate","content":[{"type":"reasoning","reasoning":"r","redacted":false},{"type":"text","text":"a"},{"type":"text","text":"b"},
			{"type":"text","text":"<think>no</think>","refusal":true}]}]`, string(chat.MessagesJSON(r.Messages)))
}
