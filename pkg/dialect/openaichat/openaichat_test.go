package openaichat_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

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
		Model:    "m",
		Messages: []*modelv1.ChatMessage{chat.System("s"), chat.User("u"), chat.Assistant("", call)},
		Tools:    []*toolv1.ToolInfo{{Name: "f", Description: "d", ParametersJson: `{"type": "object", "x-own": {"z": 1, "a": 2}}`}},
		Config: &modelv1.GenerateConfig{
			Temperature: new(0.0), MaxTokens: new(int64(5)), ExtraBodyJson: new(`{"own": {"z": 1, "a": 2}, "temperature": 0.7, "metadata": {"a": "b"}}`),
		},
		Members: []openaichat.Member{{Name: "service_tier", JSON: `"flex"`}},
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
		_, err = (&openaichat.Request{Messages: messages, Config: &modelv1.GenerateConfig{}}).Append(nil)
		var unsupported *openaichat.UnsupportedError
		require.ErrorAs(t, err, &unsupported, name)
	}
	_, err := (&openaichat.Request{Config: &modelv1.GenerateConfig{ExtraBodyJson: new("[]")}}).Append(nil)
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
		output, err := openaichat.Decode([]byte(`{"model": "m", "choices": [{"message": `+c.message+`}]}`), nil)
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
		output, err := openaichat.Decode(answer, nil)
		require.NoError(t, err, said)
		assert.Empty(t, cmp.Diff(want, output.GetUsage(), protocmp.Transform()), said)
		var facts dialect.Facts
		openaichat.Glance(answer, &facts)
		assert.Empty(t, cmp.Diff(want, facts.Usage, protocmp.Transform()), said)
	}
}

func TestBodiesThatAreNoAnswer(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, `null`, `{}`, `[]`, `"x"`, `{"choices": [{}]}`, `{"choices": 7}`, `<html>`, `{"choices": [{"message": {"content": 7}}]}`} {
		_, err := openaichat.Decode([]byte(body), nil)
		require.ErrorIs(t, err, openaichat.ErrNotCompletion, body)
	}
	_, err := openaichat.Decode([]byte(`{"error": {"message": "slow down", "code": 429}}`), nil)
	var said *openaichat.Error
	require.ErrorAs(t, err, &said)
	assert.Equal(t, openaichat.Error{Message: "slow down", Code: "429"}, *said)
}

func TestErrorsAreReadInAnyForm(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]openaichat.Error{
		`{"error": {"message": "m", "type": "t", "code": "c"}}`: {Message: "m", Type: "t", Code: "c"},
		`{"error": {"message": "m", "code": 7}}`:                {Message: "m", Code: "7"},
		`{"error": "plain"}`:                                    {Message: "plain"},
		`{"message": "top"}`:                                    {Message: "top"},
		`{"detail": "x"}`:                                       {Message: `{"detail": "x"}`},
		`<html>busy</html>`:                                     {Message: "<html>busy</html>"},
		``:                                                      {},
	} {
		assert.Equal(t, want, *openaichat.DecodeError([]byte(body)), body)
	}
}

// whole is an answer with all that a stream can carry.
const whole = `{"id": "x", "model": "m", "choices": [
	{"index": 0, "finish_reason": "tool_calls", "message": {"content": "Some text.", "reasoning_content": "Some thought.", "tool_calls": [
		{"index": 0, "id": "c1", "function": {"name": "f", "arguments": "{\"a\": 1}"}}, {"index": 1, "id": "c2", "function": {"name": "g", "arguments": "{}"}}]},
		"logprobs": {"content": [{"token": "a", "logprob": -1}, {"token": "b", "logprob": -2}]}},
	{"index": 1, "finish_reason": "length", "message": {"content": "<think>x</think>y"}}],
	"usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 4}}}`

// chunks cuts the whole answer into chunks of a stream with pieces of so many bytes.
func chunks(size int) []string {
	chunk := func(index int, rest string) string {
		return fmt.Sprintf(`{"id": "x", "model": "m", "choices": [{"index": %d, %s}]}`, index, rest)
	}
	delta := func(index int, member, text string) (all []string) {
		for text != "" {
			n := min(size, len(text))
			piece, _ := json.Marshal(text[:n])
			all = append(all, chunk(index, fmt.Sprintf(`"delta": {%q: %s}`, member, piece)))
			text = text[n:]
		}
		return all
	}
	all := delta(0, "reasoning_content", "Some thought.")
	all = append(all, delta(1, "content", "<think>x</think>y")...)
	all = append(all, delta(0, "content", "Some text.")...)
	all = append(all,
		chunk(0, `"delta": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}, {"index": 1, "id": "c2", "function": {"name": "g"}}]}`),
		chunk(0, `"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\""}}, {"index": 1, "function": {"arguments": "{}"}}]}`),
		chunk(0, `"delta": {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}`),
		chunk(0, `"delta": {}, "logprobs": {"content": [{"token": "a", "logprob": -1}]}`),
		chunk(0, `"delta": {}, "logprobs": {"content": [{"token": "b", "logprob": -2}]}, "finish_reason": "tool_calls"`),
		chunk(1, `"delta": {}, "finish_reason": "length"`),
		`{"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 4}}}`,
		"[DONE]")
	return all
}

func TestAStreamGivesTheAnswerThatTheWholeGives(t *testing.T) {
	t.Parallel()
	want, err := openaichat.Decode([]byte(whole), nil)
	require.NoError(t, err)
	for _, size := range []int{1, 3, 1000} {
		var s openaichat.Stream
		texts := map[int32]string{}
		for _, chunk := range chunks(size) {
			deltas, err := s.Add([]byte(chunk))
			require.NoError(t, err)
			for _, d := range deltas {
				texts[d.GetChoice()] += d.GetText()
			}
		}
		assert.True(t, s.Ended())
		got, err := s.Output(nil)
		require.NoError(t, err)
		ids := protocmp.IgnoreFields(&modelv1.ChatMessage{}, "id")
		assert.Empty(t, cmp.Diff(want, got, protocmp.Transform(), ids))
		assert.Equal(t, map[int32]string{0: "Some text.", 1: "<think>x</think>y"}, texts)
	}
}

func TestAStreamFromABadServerIsAnErrorAndNoMore(t *testing.T) {
	t.Parallel()
	for _, chunk := range []string{
		`not json`, `{"choices": [{"index": -1}]}`, `{"choices": [{"index": 2000000000}]}`,
		`{"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 2000000000}]}}]}`, `{"choices": [{"index": 0, "delta": {"tool_calls": [{"index": -5}]}}]}`,
	} {
		var s openaichat.Stream
		_, err := s.Add([]byte(chunk))
		require.ErrorIs(t, err, openaichat.ErrNotCompletion, chunk)
	}
}

func FuzzStream(f *testing.F) {
	for _, chunk := range chunks(3) {
		f.Add(chunk + "\n" + `{"choices": [{"index": 2, "delta": {"tool_calls": [{"id": "c"}]}}]}`)
	}
	f.Fuzz(func(_ *testing.T, lines string) {
		var s openaichat.Stream
		for line := range strings.Lines(lines) {
			if _, err := s.Add([]byte(strings.TrimSpace(line))); err != nil {
				return
			}
		}
		_, _ = s.Output(nil)
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"choices": [{"message": {"content": null, "refusal": "no", "reasoning_details": [{"type": "reasoning.text", "text": "t"}]}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		output, err := openaichat.Decode(body, nil)
		_ = openaichat.DecodeError(body)
		if err != nil {
			return
		}
		request := openaichat.Request{Config: &modelv1.GenerateConfig{}}
		for _, choice := range output.GetChoices() {
			request.Messages = append(request.Messages, choice.GetMessage())
		}
		encoded, err := request.Append(nil)
		if err != nil || !json.Valid(encoded) {
			t.Fatalf("the answer cannot be sent back: %v %s", err, encoded)
		}
	})
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
	return &openaichat.Request{Model: "gpt-4o", Messages: messages, Config: &modelv1.GenerateConfig{}}
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
	output, err := openaichat.Decode([]byte(`{"choices":[
		{"index":0,"message":{"content":"some","refusal":"no","reasoning_content":"why"},"finish_reason":"stop"},
		{"index":1,"message":{"refusal":"no"},"finish_reason":"content_filter"}]}`), nil)
	require.NoError(t, err)
	parts := output.GetChoices()[0].GetMessage().GetContent().GetList().GetParts()
	require.Len(t, parts, 2)
	assert.Equal(t, "why", parts[0].GetReasoning().GetReasoning())
	assert.Equal(t, "no", parts[1].GetText().GetText())
	assert.True(t, parts[1].GetText().GetRefusal())
	assert.Equal(t, "refusal", output.GetChoices()[0].GetStopDetails().GetType())
	assert.Equal(t, "content_filter", output.GetChoices()[1].GetStopDetails().GetType())
}
