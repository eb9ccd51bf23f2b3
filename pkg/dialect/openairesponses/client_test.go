package openairesponses_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// decode reads an answer of the vendor.
func decode(body string) (*modelv1.ModelOutput, error) {
	response, err := openairesponses.Codec{}.DecodeResponse([]byte(body))
	if err != nil {
		return nil, err
	}
	return response.Output(nil)
}

func parseMessages(t testing.TB, document string) []*modelv1.ChatMessage {
	t.Helper()
	messages, err := chat.ParseMessages([]byte(document))
	require.NoError(t, err)
	return messages
}

// encodeInput returns the items of a conversation.
func encodeInput(t testing.TB, r *openairesponses.Request) string {
	t.Helper()
	body, err := r.Append(nil)
	require.NoError(t, err)
	input, ok := strings.CutPrefix(string(body), `{"model":"","input":`)
	require.True(t, ok, "%s", body)
	return strings.TrimSuffix(input, "}")
}

func TestARequestHasOneOrderAndKeepsJSONOfOthers(t *testing.T) {
	t.Parallel()
	body, err := (&openairesponses.Request{
		SealReasoning: true,
		Request: dialect.Request{
			Model: "m", Stream: true,
			Messages: []*modelv1.ChatMessage{
				chat.System("s"), chat.User("u"), chat.Assistant("", chat.Call("c1", "f", `{"z": 1.0, "a": 123456789012345678901234567890}`)),
				chat.ToolMessage(&toolv1.ToolResult{CallId: "c1", Function: "f", Content: chat.TextContent("2")}),
			},
			Tools: []*toolv1.ToolInfo{{Name: "f", Description: "d", ParametersJson: `{"type": "object", "x-own": {"z": 1, "a": 2}}`}},
			Config: &modelv1.GenerateConfig{
				Temperature: new(0.0), MaxTokens: new(int64(5)), ExtraBodyJson: new(`{"own": {"z": 1, "a": 2}, "temperature": 0.7, "metadata": {"a": "b"}}`),
			},
			Members: []dialect.Member{{Name: "store", JSON: `false`}},
		},
	}).Append(nil)
	require.NoError(t, err)
	assert.Equal(t, `{"model":"m","input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"s"}]},`+
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"u"}]},`+
		`{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"z\": 1.0, \"a\": 123456789012345678901234567890}"},`+
		`{"type":"function_call_output","call_id":"c1","output":"2"}],`+
		`"tools":[{"type":"function","name":"f","description":"d","parameters":{"type": "object", "x-own": {"z": 1, "a": 2}},"strict":false}],`+
		`"max_output_tokens":5,"include":["reasoning.encrypted_content"],"stream":true,"store":false,"own":{"z":1,"a":2},"temperature":0.7}`,
		string(body), "extra_body replaces, and keeps the order of its members")
}

// A failed call has a message, and may have pictures.
func TestAFailedCallKeepsItsPictures(t *testing.T) {
	t.Parallel()
	const picture = `{"type":"input_image","image_url":"data:image/png;base64,aGk=","detail":"auto"}`
	for message, want := range map[string]string{"no": `[{"type":"input_text","text":"no"},` + picture + `]`, "": `[` + picture + `]`} {
		result := chat.ToolMessage(&toolv1.ToolResult{
			CallId: "c1", Function: "f", Error: &toolv1.ToolCallError{Message: message},
			Content: chat.ListContent(chat.TextPart(message), chat.ImagePart("data:image/png;base64,aGk=")),
		})
		got := encodeInput(t, &openairesponses.Request{Request: dialect.Request{Messages: []*modelv1.ChatMessage{result}}})
		assert.Equal(t, `[{"type":"function_call_output","call_id":"c1","output":`+want+`}]`, got)
	}
}

// Servers that refuse an answer of reasoning alone get a text after it.
func TestReasoningAloneIsFilled(t *testing.T) {
	t.Parallel()
	const thought = `{"type":"reasoning","summary":[],"content":[],"encrypted_content":null}`
	const call = `{"id":"c","function":"f","arguments":{},"type":"function"}`
	filled := `,{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"(no content)","annotations":[],"logprobs":[]}]}`
	for _, test := range []struct {
		fill           bool
		document, want string
	}{
		{true, `[{"role":"assistant","content":[{"type":"reasoning","reasoning":"t"}]}]`, thought + filled},
		{false, `[{"role":"assistant","content":[{"type":"reasoning","reasoning":"t"}]}]`, thought},
		{true, `[{"role":"assistant","content":[{"type":"reasoning","reasoning":"t"}],"tool_calls":[` + call + `]}]`, thought + `,{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`},
		{true, `[{"role":"assistant","content":[]}]`, ""},
		{true, `[{"role":"assistant","content":[{"type":"data","data":{"x":1}}]}]`, ""},
		{true, `[{"role":"assistant","content":[{"type":"data","data":{"x":1}},{"type":"reasoning","reasoning":"t"}]}]`, thought + filled},
	} {
		r := &openairesponses.Request{FillEmpty: test.fill, Request: dialect.Request{Messages: parseMessages(t, test.document)}}
		assert.JSONEq(t, "["+test.want+"]", encodeInput(t, r), test.document)
	}
}

// Options of reasoning in extra_body are sent beside those of the configuration, which go before them.
func TestOptionsOfReasoningInTheExtraBody(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ extra, want string }{
		{`{"reasoning":{"exclude":true}}`, `{"effort":"high","exclude":true}`},
		{`{"reasoning":{"effort":"low","summary":"auto"}}`, `{"effort":"high","summary":"auto"}`},
		{`{"reasoning":null}`, `{"effort":"high"}`},
		{`{"reasoning":"much"}`, `"much"`},
	} {
		r := &openairesponses.Request{Request: dialect.Request{
			Model: "m", Config: &modelv1.GenerateConfig{ReasoningEffort: new("high"), ExtraBodyJson: &test.extra},
		}}
		body, err := r.Append(nil)
		require.NoError(t, err)
		assert.JSONEq(t, `{"model":"m","input":[],"reasoning":`+test.want+`}`, string(body), test.extra)
	}
	alone := &openairesponses.Request{Request: dialect.Request{Model: "m", Config: &modelv1.GenerateConfig{ExtraBodyJson: new(`{"reasoning":{"a":1}}`)}}}
	body, err := alone.Append(nil)
	require.NoError(t, err)
	assert.JSONEq(t, `{"model":"m","input":[],"reasoning":{"a":1}}`, string(body))
	renamed := &openairesponses.Request{Request: dialect.Request{Model: "m", Config: &modelv1.GenerateConfig{
		ReasoningSummary: new("auto"), ExtraBodyJson: new(`{"reasoning":{"generate_summary":"concise"}}`),
	}}}
	body, err = renamed.Append(nil)
	require.NoError(t, err)
	assert.JSONEq(t, `{"model":"m","input":[],"reasoning":{"summary":"auto"}}`, string(body), "the old name of the summary")
}

func TestWhatTheFormatCannotSayIsAnError(t *testing.T) {
	t.Parallel()
	r := &openairesponses.Request{Request: dialect.Request{Messages: parseMessages(t, `[{"role": "user", "content": [{"type": "reasoning", "reasoning": "r"}]}]`)}}
	_, err := r.Append(nil)
	var unsupported *dialect.UnsupportedError
	require.ErrorAs(t, err, &unsupported)
	assert.ErrorContains(t, err, "the Responses API cannot take content")
	_, err = (&openairesponses.Request{Request: dialect.Request{Config: &modelv1.GenerateConfig{ExtraBodyJson: new("[]")}}}).Append(nil)
	require.ErrorAs(t, err, &unsupported)
}

// Texts of the assistant are the messages as which they came, with their phase; what has no place among them follows.
func TestATurnOfTheAssistant(t *testing.T) {
	t.Parallel()
	const text = `"annotations":[],"logprobs":[]`
	for name, test := range map[string]struct {
		phases         bool
		document, want string
	}{
		"two messages": {
			false,
			`[{"role":"assistant","content":[{"type":"text","text":"a","internal":{"message_id":"msg_1","message_phase":"commentary"}},{"type":"text","text":"b","internal":{"message_id":"msg_2"}}]}]`,
			`[{"type":"message","role":"assistant","status":"completed","phase":"commentary","content":[{"type":"output_text","text":"a",` + text + `}]},
			  {"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"b",` + text + `}]}]`,
		},
		"one message of two parts": {
			false, `[{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"no","refusal":true}]}]`,
			`[{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a",` + text + `},{"type":"refusal","refusal":"no"}]}]`,
		},
		"phases": {
			true, `[{"role":"assistant","content":"x","tool_calls":[{"id":"c","function":"f","arguments":{},"type":"function"}]},{"role":"assistant","content":"y"}]`,
			`[{"type":"message","role":"assistant","status":"completed","phase":"commentary","content":[{"type":"output_text","text":"x",` + text + `}]},
			  {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
			  {"type":"message","role":"assistant","status":"completed","phase":"final_answer","content":[{"type":"output_text","text":"y",` + text + `}]}]`,
		},
		"phases beside tools of the server": {
			true,
			`[{"role":"assistant","content":[
				{"type":"tool_use","tool_type":"code_execution","id":"u","name":"code_interpreter",
				"arguments":"1","result":"1"},
				{"type":"text","text":"y"}]}]`,
			`[{"type":"message","role":"assistant","status":"completed","content":[
				{"type":"output_text","text":"code_interpreter: 1\n\n1",` + text + `}]},
			  {"type":"message","role":"assistant","status":"completed","phase":"commentary","content":[
				{"type":"output_text","text":"y",` + text + `}]}]`,
		},
		"an empty text beside a call": {
			false,
			`[{"role":"assistant","content":[{"type":"text","text":""},{"type":"text","text":"a"}],"tool_calls":[{"id":"c","function":"f","arguments":{},"type":"function"}]},
			  {"role":"assistant","content":[{"type":"text","text":""},{"type":"text","text":"b"}]}]`,
			`[{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a",` + text + `}]},
			  {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
			  {"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"",` + text + `},{"type":"output_text","text":"b",` + text + `}]}]`,
		},
		"one message of two parts, one with data of another provider": {
			false, `[{"role":"assistant","content":[{"type":"text","text":"a","internal":{"k":1}},{"type":"text","text":"b"}]}]`,
			`[{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a",` + text + `},{"type":"output_text","text":"b",` + text + `}]}]`,
		},
		"data that has no place": {
			false, `[{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"data","data":{"x":1}},{"type":"text","text":"b"}]}]`,
			`[{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a",` + text + `},{"type":"output_text","text":"b",` + text + `}]}]`,
		},
		"summaries": {
			false,
			`[{"role":"assistant","content":[{"type":"reasoning","reasoning":"t","summary":"s"},
				{"type":"reasoning","reasoning":"ENC","summary":"s","signature":"rs_1","redacted":true},{"type":"reasoning","reasoning":"t"}]}]`,
			`[{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"content":[],"encrypted_content":null},
			  {"type":"reasoning","id":"rs_1","summary":[],"content":[],"encrypted_content":"ENC"},
			  {"type":"reasoning","summary":[],"content":[],"encrypted_content":null}]`,
		},
		"a picture": {
			false, `[{"role":"assistant","content":[{"type":"image","image":"data:image/png;base64,aGk=","detail":"low"}]}]`,
			`[{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,aGk=","detail":"low"}]}]`,
		},
	} {
		r := &openairesponses.Request{Phases: test.phases, Request: dialect.Request{Messages: parseMessages(t, test.document)}}
		assert.JSONEq(t, test.want, encodeInput(t, r), name)
	}
}

// Files that a text cites or links to are kept; a page has its address.
func TestCitedFiles(t *testing.T) {
	t.Parallel()
	output, err := decode(`{"id":"r","status":"completed","model":"m","output":[{"id":"m1","type":"message","content":[{"type":"output_text","text":"t","annotations":[
		{"type":"file_citation","file_id":"f1","filename":"a.txt","index":2},{"type":"file_path","file_id":"f2","index":0},{"type":"odd"}]}]}]}`)
	require.NoError(t, err)
	var kept []string
	for _, citation := range chat.Parts(chat.FirstMessage(output).GetContent())[0].GetText().GetCitations() {
		kept = append(kept, citation.GetInternalJson())
	}
	assert.Equal(t, []string{`{"file_id":"f1","index":2}`, `{"file_id":"f2","index":0}`}, kept)
}

// All that the model says of a refusal explains it, and a filter goes before.
func TestRefusalsAreExplained(t *testing.T) {
	t.Parallel()
	for status, kind := range map[string]string{
		`"completed"`: "refusal", `"incomplete","incomplete_details":{"reason":"content_filter"}`: "content_filter",
	} {
		output, err := decode(`{"id":"r","status":` + status + `,"model":"m","output":[
			{"type":"message","content":[{"type":"refusal","refusal":"No."},{"type":"output_text","text":"t"}]},{"type":"message","content":[{"type":"refusal","refusal":"Never."}]}]}`)
		require.NoError(t, err)
		details := output.GetChoices()[0].GetStopDetails()
		assert.Equal(t, kind, details.GetType())
		assert.Equal(t, "No.\nNever.", details.GetExplanation())
	}
}

// An answer with calls stopped for them, also if it ended before it was complete.
func TestCallsGoBeforeTheEndOfAnAnswer(t *testing.T) {
	t.Parallel()
	const call = `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`
	for status, reasons := range map[string][2]modelv1.StopReason{
		`"completed"`: {modelv1.StopReason_STOP_REASON_STOP, modelv1.StopReason_STOP_REASON_TOOL_CALLS},
		`"incomplete","incomplete_details":{"reason":"max_output_tokens"}`: {modelv1.StopReason_STOP_REASON_MAX_TOKENS, modelv1.StopReason_STOP_REASON_TOOL_CALLS},
		`"incomplete","incomplete_details":{"reason":"content_filter"}`:    {modelv1.StopReason_STOP_REASON_CONTENT_FILTER, modelv1.StopReason_STOP_REASON_TOOL_CALLS},
		`"in_progress"`: {modelv1.StopReason_STOP_REASON_UNKNOWN, modelv1.StopReason_STOP_REASON_UNKNOWN},
	} {
		for i, items := range []string{"", call} {
			output, err := decode(`{"id":"r","status":` + status + `,"model":"m","output":[` + items + `]}`)
			require.NoError(t, err)
			assert.Equal(t, reasons[i], output.GetChoices()[0].GetStopReason(), "%s %s", status, items)
		}
	}
}

// What can be read of sealed reasoning is its summary, if it has no other.
func TestSealedReasoning(t *testing.T) {
	t.Parallel()
	for summary, want := range map[string]string{`[]`: "read", `[{"type":"summary_text","text":"short"}]`: "short"} {
		output, err := decode(`{"id":"r","status":"completed","model":"m","output":[
			{"id":"rs_1","type":"reasoning","summary":` + summary + `,"content":[{"type":"reasoning_text","text":"read"}],"encrypted_content":"ENC"}]}`)
		require.NoError(t, err)
		r := chat.Parts(chat.FirstMessage(output).GetContent())[0].GetReasoning()
		assert.Equal(t, "ENC", r.GetReasoning())
		assert.True(t, r.GetRedacted())
		assert.Equal(t, want, r.GetSummary())
	}
}

// Files are given with their data, or by their address.
func TestFiles(t *testing.T) {
	t.Parallel()
	messages := parseMessages(t, `[{"role":"user","content":[
		{"type":"document","document":"https://x.example/a.pdf","filename":"a.pdf","mime_type":"application/pdf"},
		{"type":"audio","audio":"data:audio/wav;base64,aGk=","format":"wav"},{"type":"image","image":"https://x.example/a.png","detail":"original"}]}]`)
	assert.JSONEq(t, `[{"type":"message","role":"user","content":[{"type":"input_file","file_url":"https://x.example/a.pdf"},
		{"type":"input_file","file_data":"data:audio/wav;base64,aGk=","filename":"audio.wav"},
		{"type":"input_image","image_url":"https://x.example/a.png","detail":"original"}]}]`,
		encodeInput(t, &openairesponses.Request{Request: dialect.Request{Messages: messages}}))
}

func TestCacheMarks(t *testing.T) {
	t.Parallel()
	messages := parseMessages(t, `[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"a","cache_breakpoint":true},{"type":"text","text":"b"}]}]`)
	body, err := (&openairesponses.Request{CacheMarks: true, Request: dialect.Request{Model: "m", Messages: messages}}).Append(nil)
	require.NoError(t, err)
	const mark = `"prompt_cache_breakpoint":{"mode":"explicit"}`
	assert.JSONEq(t, `{"model":"m","input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"Be brief.",`+mark+`}]},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"a",`+mark+`},{"type":"input_text","text":"b"}]}],
		"prompt_cache_options":{"mode":"explicit"}}`, string(body))
}

func TestWhatAnAnswerSays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ response, want string }{
		"a state is left out": {
			`"output":[{"type":"function_call","call_id":"c","name":"f","arguments":{"b":1,"a":2}}]`,
			`{"message":{"role":"assistant","source":"generate","model":"m","content":[],"tool_calls":[{"id":"c","function":"f","arguments":{"b":1,"a":2},"type":"function"}]},"stop_reason":"tool_calls"}`,
		},
		"a state that is no end": {
			`"status":"cancelled","output":[]`, `{"message":{"role":"assistant","source":"generate","model":"m","content":[]},"stop_reason":"unknown"}`,
		},
		"log-probabilities": {
			`"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"a","logprobs":[{"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[{"token":"b","logprob":-2,"bytes":[98]}]}]}]}]`,
			`{"message":{"role":"assistant","source":"generate","model":"m","content":[{"type":"text","text":"a"}]},"stop_reason":"stop",
				"logprobs":{"content":[{"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[{"token":"b","logprob":-2,"bytes":[98]}]}]}}`,
		},
		"an item and a part of tomorrow": {
			`"status":"completed","output":[{"type":"dance","steps":[]},{"type":"message","content":[{"type":"scent"},{"type":"output_text","text":"a","annotations":[{"type":"rumour"}]}]}]`,
			`{"message":{"role":"assistant","source":"generate","model":"m","content":[{"type":"text","text":"a"}]},"stop_reason":"stop"}`,
		},
	} {
		output, err := decode(`{"model":"m",` + c.response + `}`)
		require.NoError(t, err, name)
		require.Len(t, output.GetChoices(), 1)
		output.Choices[0].Message.Id = ""
		want, err := chat.ParseOutput([]byte(`{"model":"m","choices":[` + c.want + `]}`))
		require.NoError(t, err)
		want.Choices[0].Message.Id = ""
		assert.Empty(t, cmp.Diff(want.GetChoices(), output.GetChoices(), protocmp.Transform()), name)
	}
}

func TestUsageThatCannotBeIsUnknown(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]*modelv1.ModelUsage{
		`{"input_tokens": -5, "output_tokens": 2, "total_tokens": 7}`: nil,
		`{"input_tokens": 5, "output_tokens": 2}`:                     {InputTokens: 5, OutputTokens: 2, TotalTokens: 7},
		`{"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "input_tokens_details": {"cached_tokens": 9}}`: {
			OutputTokens: 2, TotalTokens: 7, InputTokensCacheRead: new(int64(9)),
		},
	} {
		answer := `{"status": "completed", "model": "m", "output": [], "usage": ` + said + `}`
		output, err := decode(answer)
		require.NoError(t, err, said)
		assert.Empty(t, cmp.Diff(want, output.GetUsage(), protocmp.Transform()), said)
		var facts dialect.Facts
		openairesponses.Codec{}.ScanUsage([]byte(answer), &facts)
		assert.Empty(t, cmp.Diff(want, facts.Usage, protocmp.Transform()), said)
	}
}

// The members of an event that is an error are its own, also if it has no message.
func TestAnErrorThatIsAnEvent(t *testing.T) {
	t.Parallel()
	for _, message := range []string{`"m"`, `""`, `null`} {
		body := `{"type":"error","sequence_number":1,"code":"rate_limit_exceeded","message":` + message + `,"param":"p"}`
		said := openairesponses.Codec{}.DecodeError([]byte(body))
		assert.Equal(t, []any{"", "rate_limit_exceeded", "p", 429}, []any{said.Type, said.Code, said.Param, said.Status}, message)
		assert.NotEmpty(t, said.Message, message)
	}
}

// A filter, or a full context, ends an answer and is no failure, also in an answer that failed.
func TestWhatStopsAnAnswer(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]modelv1.StopReason{
		"context_length_exceeded": modelv1.StopReason_STOP_REASON_MODEL_LENGTH, "invalid_prompt": modelv1.StopReason_STOP_REASON_CONTENT_FILTER,
		"image_content_policy_violation": modelv1.StopReason_STOP_REASON_CONTENT_FILTER, "image_too_small": 0, "server_error": 0,
	} {
		body := `{"id":"resp_1","status":"failed","output":[],"error":{"code":"` + code + `","message":"m"}}`
		said := openairesponses.Codec{}.DecodeError([]byte(body))
		output, ok := openairesponses.Codec{}.Stopped(200, said, "asked")
		assert.Equal(t, want != 0, ok, code)
		if ok {
			assert.Equal(t, want, chat.StopReason(output), code)
			assert.Equal(t, []string{"asked", "resp_1"}, []string{output.GetModel(), output.GetResponseId()})
		}
		var facts dialect.Facts
		openairesponses.Codec{}.ScanUsage([]byte(body), &facts)
		assert.True(t, facts.Failed, code)
	}
}

// Some servers send whole items, without pieces.
func TestAStreamOfWholeItems(t *testing.T) {
	t.Parallel()
	s := openairesponses.Codec{}.NewStreamReader()
	var all strings.Builder
	for _, data := range []string{
		`{"type":"response.created","response":{"id":"resp_1","model":"m"}}`,
		`{"type":"response.output_item.added","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Ber"}]}}`,
		`{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Bergen."}]}}`,
		`{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}}`,
	} {
		deltas, err := s.Add(dialect.Event{Data: []byte(data)})
		require.NoError(t, err)
		for _, d := range deltas {
			all.WriteString(d.GetText() + d.GetToolCall().GetFunction() + d.GetToolCall().GetArguments())
		}
	}
	assert.Equal(t, "Bergen.f{}", all.String())
	assert.False(t, s.Complete())
	output, err := s.Response().Output(nil)
	require.NoError(t, err)
	assert.Equal(t, "Bergen.", output.GetCompletion())
	assert.Equal(t, modelv1.StopReason_STOP_REASON_UNKNOWN, chat.StopReason(output))
}

// Places may skip some. The pieces are the whole text, each part once, with breaks between those of a summary.
func TestPiecesOfAStreamWhosePlacesSkip(t *testing.T) {
	t.Parallel()
	s := openairesponses.Codec{}.NewStreamReader()
	var text, reasoning strings.Builder
	for event, err := range (openairesponses.Codec{}).ReadEvents(strings.NewReader(skipping)) {
		require.NoError(t, err)
		deltas, err := s.Add(event)
		require.NoError(t, err)
		for _, d := range deltas {
			text.WriteString(d.GetText())
			reasoning.WriteString(d.GetReasoning())
		}
	}
	assert.Equal(t, []string{"Some text.", "Adds.\n\nChecks."}, []string{text.String(), reasoning.String()})
	for _, place := range []string{"-1", "1024", "2000000000"} {
		s := openairesponses.Codec{}.NewStreamReader()
		_, err := s.Add(dialect.Event{Data: []byte(`{"type":"response.output_item.added","item":{"type":"message"}}`)})
		require.NoError(t, err)
		_, err = s.Add(dialect.Event{Data: []byte(`{"type":"response.output_text.delta","content_index":` + place + `,"delta":"x"}`)})
		var malformed *dialect.MalformedError
		require.ErrorAs(t, err, &malformed, place)
	}
}

// A client cannot choose the price of its answer by metadata, which the server repeats.
func TestTheTierIsTheAnswersOwn(t *testing.T) {
	t.Parallel()
	for metadata, tier := range map[string]string{"default": "priority", "priority": "default"} {
		var facts dialect.Facts
		openairesponses.Codec{}.ScanUsage([]byte(`{"id":"r","status":"completed","output":[],"metadata":{"service_tier":"`+metadata+`"},"service_tier":"`+tier+`",`+
			`"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}`), &facts)
		assert.Equal(t, openai.Mode(tier), facts.Billing.Mode)
	}
}
