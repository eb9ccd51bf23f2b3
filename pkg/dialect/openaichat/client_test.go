package openaichat_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// decode reads an answer of the vendor.
func decode(body string) (*modelv1.ModelOutput, error) {
	response, err := openaichat.Codec{}.DecodeResponse([]byte(body))
	if err != nil {
		return nil, err
	}
	return response.Output(nil)
}

func encodeRequest(t testing.TB, r *openaichat.Request) string {
	t.Helper()
	if r.Config == nil {
		r.Config = &modelv1.GenerateConfig{}
	}
	body, err := r.Append(nil)
	require.NoError(t, err)
	return string(body)
}

func TestARequestHasOneOrderAndKeepsJSONOfOthers(t *testing.T) {
	t.Parallel()
	call := chat.Call("c1", "f", `{"z": 1.0, "a": 123456789012345678901234567890}`)
	body := encodeRequest(t, &openaichat.Request{
		Request: dialect.Request{
			Model:    "m",
			Messages: []*modelv1.ChatMessage{chat.System("s"), chat.User("u"), chat.Assistant("", call)},
			Tools:    []*toolv1.ToolInfo{{Name: "f", Description: "d", ParametersJson: `{"type": "object", "x-own": {"z": 1, "a": 2}}`}},
			Config: &modelv1.GenerateConfig{
				Temperature: new(0.0), MaxTokens: new(int64(5)), ExtraBodyJson: new(`{"own": {"z": 1, "a": 2}, "temperature": 0.7, "metadata": {"a": "b"}}`),
			},
			Members: []dialect.Member{{Name: "service_tier", JSON: `"flex"`}},
		},
	})
	assert.Equal(t, `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"","tool_calls":[`+
		`{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"z\": 1.0, \"a\": 123456789012345678901234567890}"}}]}],`+
		`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type": "object", "x-own": {"z": 1, "a": 2}}}}],"tool_choice":"auto",`+
		`"max_tokens":5,"service_tier":"flex","own":{"z":1,"a":2},"temperature":0.7}`, body, "extra_body replaces, and keeps the order of its members")
}

func TestWhatTheFormatCannotSayIsAnError(t *testing.T) {
	t.Parallel()
	for name, document := range map[string]string{
		"video":     `[{"role": "user", "content": [{"type": "video", "video": "data:video/mp4;base64,AA", "format": "mp4"}]}]`,
		"reasoning": `[{"role": "user", "content": [{"type": "reasoning", "reasoning": "r"}]}]`,
		"far audio": `[{"role": "user", "content": [{"type": "audio", "audio": "https://x/a.wav", "format": "wav"}]}]`,
	} {
		messages, err := chat.ParseMessages([]byte(document))
		require.NoError(t, err)
		_, err = (&openaichat.Request{Request: dialect.Request{Messages: messages, Config: &modelv1.GenerateConfig{}}}).Append(nil)
		var unsupported *dialect.UnsupportedError
		require.ErrorAs(t, err, &unsupported, name)
	}
	_, err := (&openaichat.Request{Request: dialect.Request{Config: &modelv1.GenerateConfig{ExtraBodyJson: new("[]")}}}).Append(nil)
	require.Error(t, err)
}

func TestAnswersOfServersThatDiffer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ message, text, arguments string }{
		"a list of parts":               {`{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}`, "ab", ""},
		"null":                          {`{"content": null}`, "", ""},
		"arguments that are an object":  {`{"content": "", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}}]}`, "", `{"b": 1, "a": 2}`},
		"arguments that are null":       {`{"content": "", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": null}}]}`, "", `{}`},
		"a call without a name is none": {`{"content": "x", "tool_calls": [{"id": "c", "type": "custom"}]}`, "x", ""},
	} {
		output, err := decode(`{"model": "m", "choices": [{"message": ` + c.message + `}]}`)
		require.NoError(t, err, name)
		assert.Equal(t, c.text, output.GetCompletion(), name)
		calls := chat.FirstMessage(output).GetToolCalls()
		assert.Len(t, calls, min(1, len(c.arguments)), name)
		if len(calls) > 0 {
			assert.Equal(t, c.arguments, calls[0].GetArgumentsJson(), name)
		}
	}
}

func TestUsageThatCannotBeIsUnknown(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]*modelv1.ModelUsage{
		`{"prompt_tokens": -1000000, "completion_tokens": -1000000, "total_tokens": -2000000}`: nil,
		`{"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": -7}`:                     nil,
		`{"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": -4, "cache_write_tokens": -9223372036854775808}}`: {
			InputTokens: 5, OutputTokens: 2, TotalTokens: 7,
		},
		`{"prompt_tokens": 5, "completion_tokens": 9223372036854775807, "total_tokens": 9223372036854775807, "prompt_tokens_details": {"cached_tokens": 9223372036854775807, "cache_write_tokens": 9223372036854775807}}`: {
			InputTokens: 0, OutputTokens: 1 << 53, TotalTokens: 1 << 53, InputTokensCacheRead: new(int64(1 << 53)), InputTokensCacheWrite: new(int64(1 << 53)),
		},
		`{"prompt_tokens": 5, "completion_tokens": 2}`: {InputTokens: 5, OutputTokens: 2, TotalTokens: 7},
	} {
		answer := []byte(`{"model": "m", "choices": [{"message": {"content": "x"}}], "usage": ` + said + `}`)
		output, err := decode(string(answer))
		require.NoError(t, err, said)
		assert.Empty(t, cmp.Diff(want, output.GetUsage(), protocmp.Transform()), said)
		var facts dialect.Facts
		openaichat.Codec{}.ScanUsage(answer, &facts)
		assert.Empty(t, cmp.Diff(want, facts.Usage, protocmp.Transform()), said)
	}
}

// context400KB is a conversation of about 400 KB: a long session of an agent with tools.
func context400KB() *openaichat.Request {
	messages := []*modelv1.ChatMessage{chat.System(strings.Repeat("Follow the rules of the house. ", 200))}
	for i := range 50 {
		id := fmt.Sprintf("call_%d", i)
		messages = append(messages,
			chat.Assistant("Let me look at the next file.", chat.Call(id, "bash", `{"cmd": "sed -n 1,200p internal/server/server.go"}`)),
			chat.ToolMessage(&toolv1.ToolResult{CallId: id, Function: "bash", Content: chat.TextContent(strings.Repeat("\tif err != nil {\n\t\treturn err\n\t}\n", 240))}))
	}
	return &openaichat.Request{Request: dialect.Request{Model: "gpt-4o", Messages: messages, Config: &modelv1.GenerateConfig{}}}
}

func BenchmarkEncode400KB(b *testing.B) {
	r := context400KB()
	body, err := r.Append(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Append(nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			dst := make([]byte, len(body))
			copy(dst, body)
		}
	})
}

func TestARefusalStandsInThePlaceOfTheTextAndKeepsTheReasoning(t *testing.T) {
	t.Parallel()
	output, err := decode(`{"choices":[
		{"index":0,"message":{"content":"some","refusal":"no","reasoning_content":"why"},"finish_reason":"stop"},
		{"index":1,"message":{"refusal":"no"},"finish_reason":"content_filter"}]}`)
	require.NoError(t, err)
	parts := output.GetChoices()[0].GetMessage().GetContent().GetList().GetParts()
	require.Len(t, parts, 2)
	assert.Equal(t, "why", parts[0].GetReasoning().GetReasoning())
	assert.Equal(t, "no", parts[1].GetText().GetText())
	assert.True(t, parts[1].GetText().GetRefusal())
	assert.Equal(t, "refusal", output.GetChoices()[0].GetStopDetails().GetType())
	assert.Equal(t, "content_filter", output.GetChoices()[1].GetStopDetails().GetType())
}

// Servers that refuse empty messages of the assistant get a text in their place.
func TestEmptyContentsAreFilled(t *testing.T) {
	t.Parallel()
	messages := []*modelv1.ChatMessage{chat.Assistant(""), {Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent()}, chat.Assistant("a"), chat.User("")}
	for fill, want := range map[bool]string{false: "", true: "(no content)"} {
		body := encodeRequest(t, &openaichat.Request{FillEmpty: fill, Request: dialect.Request{Model: "m", Messages: messages}})
		assert.JSONEq(t, fmt.Sprintf(`{"model":"m","messages":[{"role":"assistant","content":%q},{"role":"assistant","content":%q},
			{"role":"assistant","content":"a"},{"role":"user","content":""}]}`, want, want), body)
	}
}

// Servers that take an answer's parts get its texts and pictures, and no reasoning.
func TestPartsOfAnAnswer(t *testing.T) {
	t.Parallel()
	text, picture, thought := chat.TextPart("a"), chat.ImagePart("data:image/png;base64,aGk="), chat.ReasoningPart("hm")
	for name, test := range map[string]struct {
		parts []*contentv1.Content
		want  string
	}{
		"one text":        {[]*contentv1.Content{thought, text}, `"a"`},
		"reasoning alone": {[]*contentv1.Content{thought}, `""`},
		"two texts": {
			[]*contentv1.Content{text, thought, text},
			`[{"type":"text","text":"a"},{"type":"text","text":"a"}]`,
		},
		"a picture, alone": {
			[]*contentv1.Content{picture},
			`[{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk=","detail":"auto"}}]`,
		},
	} {
		m := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(test.parts...)}
		body := encodeRequest(t, &openaichat.Request{
			AnswerParts: true, Request: dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{m}},
		})
		assert.JSONEq(t, `{"model":"m","messages":[{"role":"assistant","content":`+test.want+`}]}`, body, name)
	}
	rules := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_SYSTEM, Content: chat.ListContent(text, text)}
	body := encodeRequest(t, &openaichat.Request{AnswerParts: true, Request: dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{rules, chat.System("b")}}})
	assert.JSONEq(t, `{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"a"}]},{"role":"system","content":"b"}]}`, body)
}

// Servers for which texts are joined get an answer of texts alone without breaks, and null in place of a blank text
// beside calls.
func TestTextsAreJoined(t *testing.T) {
	t.Parallel()
	a, b, blank, thought := chat.TextPart("a"), chat.TextPart("b"), chat.TextPart("  "), chat.ReasoningPart("hm")
	const call = `,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]`
	for name, test := range map[string]struct {
		content *contentv1.MessageContent
		calls   bool
		want    string
	}{
		"texts":                     {chat.ListContent(a, b), false, `"ab"`},
		"an empty text":             {chat.ListContent(chat.TextPart(""), a), false, `"a"`},
		"texts beside a call":       {chat.ListContent(a, b), true, `"ab"` + call},
		"a blank text":              {chat.ListContent(blank), false, `"  "`},
		"a blank text and a call":   {chat.ListContent(blank), true, `null` + call},
		"an empty text and a call":  {chat.TextContent(""), true, `null` + call},
		"reasoning before the text": {chat.ListContent(thought, a), false, `"\n<think>\nhm\n</think>\n\na"`},
	} {
		m := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_ASSISTANT, Content: test.content}
		if test.calls {
			m.ToolCalls = []*toolv1.ToolCall{chat.Call("c1", "f", "")}
		}
		body := encodeRequest(t, &openaichat.Request{JoinTexts: true, Request: dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{m}}})
		assert.JSONEq(t, `{"model":"m","messages":[{"role":"assistant","content":`+test.want+`}]}`, body, name)
	}
}

// What a provider keeps with a text is sent between tags, except to servers that get plain turns.
func TestInternalDataOfATextIsTagged(t *testing.T) {
	t.Parallel()
	text := chat.TextPart("a")
	text.InternalJson = "{}"
	m := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(chat.TextPart(""), text, chat.TextPart("b"))}
	for plain, want := range map[bool]string{true: `\na\nb`, false: `\n\na\n<<content-internal>e30=</content-internal>>\n\nb`} {
		body := encodeRequest(t, &openaichat.Request{PlainTurns: plain, Request: dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{m}}})
		assert.JSONEq(t, `{"model":"m","messages":[{"role":"assistant","content":"`+want+`"}]}`, body)
	}
}

// vLLM says those of the prompt beside the choices.
func TestLogprobsOfThePrompt(t *testing.T) {
	t.Parallel()
	const answer = `{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"prompt_logprobs":%s}`
	output, err := decode(fmt.Sprintf(answer, `[null,{"7":{"logprob":-2.5,"rank":1,"decoded_token":"Ber"},"9":{"logprob":-0.5,"decoded_token":"x"}}]`))
	require.NoError(t, err)
	want := &modelv1.Logprobs{Content: []*modelv1.Logprob{{Token: "Ber", Logprob: -2.5, TopLogprobs: []*modelv1.TopLogprob{{Token: "x", Logprob: -0.5}}}}}
	assert.Empty(t, cmp.Diff(want, output.GetChoices()[0].GetPromptLogprobs(), protocmp.Transform()))
	for _, none := range []string{`null`, `[]`, `[null]`, `{}`, `"x"`} {
		output, err = decode(fmt.Sprintf(answer, none))
		require.NoError(t, err, none)
		assert.Nil(t, output.GetChoices()[0].GetPromptLogprobs(), none)
	}
}

// Log-probabilities in two lists are read, in bodies and streams.
func TestLogprobsInTwoLists(t *testing.T) {
	t.Parallel()
	const lists = `"logprobs":{"tokens":["<s>","Ber","gen"],"token_logprobs":[null,-0.5,-0.25]}`
	want := &modelv1.Logprobs{Content: []*modelv1.Logprob{{Token: "Ber", Logprob: -0.5}, {Token: "gen", Logprob: -0.25}}}
	output, err := decode(`{"choices":[{"message":{"content":"Bergen"},` + lists + `}]}`)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(want, output.GetChoices()[0].GetLogprobs(), protocmp.Transform()))
	reader := openaichat.Codec{}.NewStreamReader()
	_, err = reader.Add(dialect.Event{Data: []byte(`{"choices":[{"index":0,"delta":{"content":"Bergen"},` + lists + `}]}`)})
	require.NoError(t, err)
	output, err = reader.Response().Output(nil)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(want, output.GetChoices()[0].GetLogprobs(), protocmp.Transform()))
}

// Cloudflare lists its errors.
func TestAListOfErrors(t *testing.T) {
	t.Parallel()
	said := openaichat.Codec{}.DecodeError([]byte(`{"errors":[{"message":"too long","code":5021}],"success":false}`))
	assert.Equal(t, "too long", said.Message)
	assert.Equal(t, "5021", said.Code)
}

// An error without an object around it has its code, and one of a request too many has its status by its type.
func TestBareErrorsAndTypes(t *testing.T) {
	t.Parallel()
	said := openaichat.Codec{}.DecodeError([]byte(`{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":"context_length_exceeded"}`))
	assert.Equal(t, "too long", said.Message)
	assert.Equal(t, "context_length_exceeded", said.Code)
	output, ok := openaichat.Codec{}.Stopped(400, said, "m")
	require.True(t, ok)
	assert.Equal(t, modelv1.StopReason_STOP_REASON_MODEL_LENGTH, output.GetChoices()[0].GetStopReason())
	assert.Equal(t, 429, openaichat.Codec{}.DecodeError([]byte(`{"error":{"message":"slow down","type":"rate_limit_error"}}`)).Status)
}

// What a client wrote, and what servers add, has members of any name, which say nothing of the answer.
func TestScanUsageReadsTheAnswersOwnMembers(t *testing.T) {
	t.Parallel()
	var facts dialect.Facts
	openaichat.Codec{}.ScanUsage([]byte(`{"id":"c","metadata":{"service_tier":"flex","finish_reason":"stop"},"choices":[{"delta":{"x":{"finish_reason":"stop"}},"finish_reason":null}],`+
		`"usage":{"prompt_tokens":1,"completion_tokens":1}}`), &facts)
	assert.False(t, facts.Ended)
	assert.Empty(t, facts.Billing.Mode)
	long := strings.Repeat("x", 20<<10)
	openaichat.Codec{}.ScanUsage([]byte(`{"id":"c","metadata":{"service_tier":"flex"},"choices":[{"message":{"content":"`+long+`"},"finish_reason":"length"}],`+
		`"service_tier":"priority","more":"`+long+`","usage":{"prompt_tokens":1,"completion_tokens":1}}`), &facts)
	assert.True(t, facts.Ended)
	assert.Equal(t, modelv1.StopReason_STOP_REASON_MAX_TOKENS, facts.StopReason)
	assert.Equal(t, "priority", facts.Billing.Mode)
}

// Groq's streams may have their usage in a member of its own; that among the usual members counts first.
func TestUsageInGroqsOwnMember(t *testing.T) {
	t.Parallel()
	for members, want := range map[string][]int64{
		`"x_groq":{"id":"r","usage":{"queue_time":0.1,"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}`:                    {10, 2, 12},
		`"usage":null,"x_groq":{"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}`:                                 {10, 2, 12},
		`"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"x_groq":{"usage":{"prompt_tokens":10,"total_tokens":10}}`: {1, 2, 3},
	} {
		chunk := []byte(`{"id":"a","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],` + members + `}`)
		counts := func(u *modelv1.ModelUsage) []int64 {
			return []int64{u.GetInputTokens(), u.GetOutputTokens(), u.GetTotalTokens()}
		}
		reader := openaichat.Codec{}.NewStreamReader()
		_, err := reader.Add(dialect.Event{Data: chunk})
		require.NoError(t, err)
		assert.Equal(t, want, counts(reader.Usage()), members)
		var facts dialect.Facts
		openaichat.Codec{}.ScanUsage(chunk, &facts)
		assert.Equal(t, want, counts(facts.Usage), members)
	}
	var facts dialect.Facts
	openaichat.Codec{}.ScanUsage([]byte(`{"id":"a","choices":[],"x_groq":{"id":"prompt_tokens"},"prompt_tokens":1}`), &facts)
	assert.Nil(t, facts.Usage)
}

func TestAStreamIsCompleteWhenAllItsChoicesAre(t *testing.T) {
	t.Parallel()
	dialecttest.CompleteChoices(t, openaichat.Codec{})
}

func TestAnAnswerInManyParts(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	output, err := decode(`{"choices":[{"message":{"content":[` + strings.Repeat(`{"text":"0123456789"},`, 500_000) + `{"text":"!"}]}}]}`)
	require.NoError(t, err)
	assert.Len(t, chat.Text(chat.FirstMessage(output)), 5_000_001)
	assert.Less(t, time.Since(begun), waittest.Bound)
}
