package anthropic_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

func messagesJSON(t *testing.T, messages []*modelv1.ChatMessage) string {
	t.Helper()
	for _, m := range messages {
		m.Id = ""
	}
	return string(chat.MessagesJSON(messages))
}

func TestRequestsOfClientsAreRead(t *testing.T) {
	t.Parallel()
	r, err := anthropic.Codec{}.ParseRequest([]byte(`{
		"model": "m", "max_tokens": 100, "stream": true, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "stop_sequences": ["END"],
		"system": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two.", "cache_control": {"type": "ephemeral"}}],
		"thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
		"metadata": {"user_id": "u"}, "service_tier": "auto", "something_new": 1,
		"tools": [{"name": "add", "input_schema": {"type": "object", "properties": {"z": {"type": "integer", "maximum": 1e400}, "a": {}}}}],
		"tool_choice": {"type": "tool", "name": "add", "disable_parallel_tool_use": true},
		"messages": [
			{"role": "user", "content": "hi"},
			{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "sig"}, {"type": "redacted_thinking", "data": "x"},
				{"type": "thinking", "thinking": "open", "signature": ""}, {"type": "tool_use", "id": "t1", "name": "add", "input": {"z": 12345678901234567890, "a": 1.0}},
				{"type": "tool_use", "id": "t2", "name": "add", "input": {}}]},
			{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": [{"type": "text", "text": "no"}]},
				{"type": "text", "text": "and", "cache_control": {"type": "ephemeral"}}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
				{"type": "tool_result", "tool_use_id": "t2", "content": "3"}]},
			{"role": "system", "content": [{"type": "text", "text": "late"}, {"type": "text", "text": "later"}]},
			{"role": "assistant", "content": "Well,"}
		]}`))
	require.NoError(t, err)
	assert.Equal(t, "m", r.Model)
	assert.True(t, r.Stream)
	assert.Equal(t, "add", r.Choice.GetFunction())
	assert.JSONEq(t, `{"max_tokens":100,"temperature":0.5,"top_p":0.9,"top_k":3,"stop_seqs":["END"],"effort":"low","reasoning_tokens":1024,"parallel_tool_calls":false,
		"extra_body":{"metadata":{"user_id":"u"}},"response_schema":{"name":"response","json_schema":{"type":"object"}}}`, string(chat.ConfigJSON(r.Config)))
	assert.Equal(t, `{"type": "object", "properties": {"z": {"type": "integer", "maximum": 1e400}, "a": {}}}`, r.Tools[0].GetParametersJson(), "schemas stay byte for byte")
	assert.JSONEq(t, `[
		{"role":"system","content":"One."},{"role":"system","content":"Two."},{"role":"user","content":"hi"},
		{"role":"assistant","content":[{"type":"reasoning","reasoning":"sig","summary":"hm","redacted":true},{"type":"reasoning","reasoning":"x","redacted":true},
			{"type":"reasoning","reasoning":"open","redacted":false}],
			"tool_calls":[{"id":"t1","function":"add","arguments":{"z":12345678901234567890,"a":1.0},"type":"function"},{"id":"t2","function":"add","arguments":{},"type":"function"}]},
		{"role":"tool","content":[{"type":"text","text":"no"}],"tool_call_id":"t1","function":"add","error":{"type":"unknown","message":"no"}},
		{"role":"user","content":[{"type":"text","text":"and","cache_breakpoint":true},{"type":"image","image":"data:image/png;base64,aGk=","detail":"auto"}]},
		{"role":"tool","content":"3","tool_call_id":"t2","function":"add"},
		{"role":"system","content":"late"},{"role":"system","content":"later"},{"role":"assistant","content":[{"type":"text","text":"Well,"}]}]`, messagesJSON(t, r.Messages))
}

func TestAChoiceOfAToolThatIsNotOnOfferIsTheModels(t *testing.T) {
	t.Parallel()
	r, err := anthropic.Codec{}.ParseRequest([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"q"}],
		"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"g"}}`))
	require.NoError(t, err)
	assert.Equal(t, toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO, r.Choice.GetMode())
}

func TestBadRequestsSayWhere(t *testing.T) {
	t.Parallel()
	ask := func(rest string) string { return `{"model":"m","max_tokens":1,` + rest + `}` }
	user := func(content string) string { return ask(`"messages":[{"role":"user","content":` + content + `}]`) }
	for body, says := range map[string]string{
		`{`:               "the body is no request",
		`[]`:              "the body is no request",
		`{"messages":[]}`: "model: is required",
		`{"model":"m"}`:   "messages: is required",
		ask(`"messages":[{"role":"robot","content":"x"}]`): `messages.0.role: "robot"`,
		user(`7`):                  "messages.0.content: content is neither",
		user(`[7]`):                "messages.0.content: ",
		user(`[{"text":"x"}]`):     "messages.0.content.0.type: is required",
		user(`[{"type":"image"}]`): "messages.0.content.0.source: is required",
		user(`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"no!"}}]`):                                                             "messages.0.content.0.source.data: is not in base64",
		user(`[{"type":"tool_result","tool_use_id":"t","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"x"}}]}]`): "messages.0.content.0.content.0.source.data: is not in base64",
		ask(`"messages":[{"role":"assistant","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"no!"}}]}]`):                  "messages.0.content.0.source.data: is not in base64",
		user(`[{"type":"tool_result","content":"x"}]`):                                                             "messages.0.content.0.tool_use_id: is required",
		ask(`"messages":[],"system":[{"type":"image"}]`):                                                           "system.0: must be a text",
		ask(`"messages":[{"role":"system","content":[{"type":"image"}]}]`):                                         "messages.0.content.0: must be a text",
		ask(`"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":"raw"}]}]`): "messages.0.content.0.input: must be an object",
		ask(`"messages":[],"mcp_servers":[{"type":"url","url":"https://mcp.example"}]`):                            "mcp_servers.0.name: is required",
		ask(`"messages":[],"mcp_servers":[{"type":"url","name":"m"}]`):                                             "mcp_servers.0.url: is required",
		ask(`"messages":[],"mcp_servers":{}`):                                                                      "mcp_servers: is no list",
		ask(`"messages":[],"tools":[{"type":"web_search_20250305","allowed_domains":"a"}]`):                        "tools.0.allowed_domains: must not be a string",
		ask(`"messages":[],"tools":[{"name":"web_search","input_schema":{}},{"type":"web_search_20250305"}]`):      "tools: must have names of their own",
		ask(`"messages":[],"tools":[{"name":"a"}]`):                                                                "tools.0.input_schema: must be an object",
		ask(`"messages":[],"tools":[{"input_schema":{}}]`):                                                         "tools.0.name: is required",
		ask(`"messages":[],"tool_choice":{"type":"tool"}`):                                                         "tool_choice.name: is required",
		ask(`"messages":[],"tool_choice":{"type":"must"}`):                                                         "tool_choice.type",
		ask(`"messages":[],"temperature":"hot"`):                                                                   "temperature: must not be a string",
		ask(`"messages":[],"temperature":{}`):                                                                      "temperature: must not be an object",
		ask(`"messages":[],"stream":[]`):                                                                           "stream: must not be an array",
		ask(`"messages":[{"role":{},"content":"x"}]`):                                                              "messages.role: must not be an object",
		user(`null`):                          "messages.0.content: is required",
		user(`[]`):                            "messages.0.content: must not be empty",
		ask(`"messages":[{"role":"user"}]`):   "messages.0.content: is required",
		user(`[{"type":"text","text":true}]`): "messages.0.content.text: must not be a boolean",
		user(`[{"type":"image","source":{"type":"url","url":"ftp://x.example/a.png"}}]`): "messages.0.content.0.source.url: is neither data:",
	} {
		_, err := anthropic.Codec{}.ParseRequest([]byte(body))
		failure, ok := errors.AsType[*dialect.RequestError](err)
		require.True(t, ok, "%s: %v", body, err)
		assert.Contains(t, failure.Error(), says, body)
	}
	for _, body := range []string{
		ask(`"messages":[],"container":"c"`),
		ask(`"messages":[],"tools":[{"type":"mcp_toolset","mcp_server_name":"m","configs":{"f":{"enabled":false}}}],"mcp_servers":[{"type":"url","url":"https://mcp.example","name":"m"}]`),
		ask(`"messages":[],"output_format":{"type":"grammar"}`),
		user(`[{"type":"image","source":{"type":"file","file_id":"f"}}]`), user(`[{"type":"search_result","source":"s"}]`),
		ask(`"messages":[],"tools":[{"type":"tool_search_tool_regex_20251119","name":"tool_search_tool_regex"}]`),
	} {
		_, err := anthropic.Codec{}.ParseRequest([]byte(body))
		failure, ok := errors.AsType[*dialect.RequestError](err)
		assert.True(t, ok && failure.Cause == dialect.Unsupported, "%s: %v", body, err)
	}
}

// A client that receives this error sends the whole conversation instead; without it the unsent part would be lost.
func TestThreadsAreRefusedAsTheVendorDoes(t *testing.T) {
	t.Parallel()
	_, err := anthropic.Codec{}.ParseRequest([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"thread":{"type":"create"}}`))
	failure, ok := errors.AsType[*dialect.RequestError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, dialect.NoThreads, failure.Cause)
}

func TestABoundOfTokensIsRequiredOfAnswersAndNotOfCounts(t *testing.T) {
	t.Parallel()
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"x"}]}`)
	_, err := anthropic.Codec{}.ParseRequest(body)
	require.ErrorContains(t, err, "max_tokens: is required")
	_, err = anthropic.Codec{}.ParseRequest([]byte(`{"model":"m","max_tokens":0,"messages":[{"role":"user","content":"x"}]}`))
	require.ErrorContains(t, err, "max_tokens: is 0")
	r, err := anthropic.Codec{}.ParseCountRequest(body)
	require.NoError(t, err)
	assert.Equal(t, "m", r.Model)
}

// Results belong to the calls of the turn before them, and each call has one.
func TestResultsBelongToTheCallsBeforeThem(t *testing.T) {
	t.Parallel()
	const (
		calls  = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"f","input":{}}]}`
		first  = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"}]}`
		second = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"b"},{"type":"text","text":"x"}]}`
		said   = `{"role":"user","content":"x"}`
		plain  = `{"role":"assistant","content":"y"}`
		system = `{"role":"system","content":"z"}`
	)
	for _, tt := range []struct {
		messages []string
		says     string
	}{
		{[]string{said, calls, first, second, plain, said}, ""},
		{[]string{said, plain, calls, system, first, second}, ""},
		{[]string{first}, "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a"},
		{[]string{said, calls, first, second, plain, first}, "messages.5.content.0: unexpected `tool_use_id`"},
		{[]string{said, calls, first, first, second}, "messages.3.content.0: unexpected `tool_use_id`"},
		{[]string{said, calls, first, plain}, "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: b"},
		{[]string{said, calls, said}, "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a, b"},
		{[]string{said, calls}, "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a, b"},
	} {
		_, err := anthropic.Codec{}.ParseRequest([]byte(`{"model":"m","max_tokens":1,"messages":[` + strings.Join(tt.messages, ",") + `]}`))
		if tt.says == "" {
			require.NoError(t, err, tt.messages)
		} else {
			require.ErrorContains(t, err, tt.says, tt.messages)
		}
	}
}

func call(id, name, arguments string) *toolv1.ToolCall { return chat.Call(id, name, arguments) }

func answer() *modelv1.ModelOutput {
	m := chat.Assistant("", call("toolu_1", "add", `{"b": 1.0, "a": 2}`))
	sealed := &contentv1.Reasoning{Reasoning: "c2ln", Summary: new("Two and two."), Redacted: true}
	m.Content = chat.ListContent(
		&contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: sealed}},
		&contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "b3BhcXVl", Redacted: true}}},
		chat.TextPart("Four."),
	)
	output := chat.MessageOutput("served", m, modelv1.StopReason_STOP_REASON_TOOL_CALLS)
	output.Usage = &modelv1.ModelUsage{InputTokens: 1, OutputTokens: 2, InputTokensCacheRead: new(int64(3)), ReasoningTokens: new(int64(1))}
	output.ResponseId = new("msg_1")
	return output
}

const answerBody = `{"id":"msg_1","type":"message","role":"assistant","model":"served","content":[` +
	`{"type":"thinking","thinking":"Two and two.","signature":"c2ln"},{"type":"redacted_thinking","data":"b3BhcXVl"},{"type":"text","text":"Four."},` +
	`{"type":"tool_use","id":"toolu_1","name":"add","input":{"b": 1.0, "a": 2}}],"stop_reason":"tool_use","stop_sequence":null,` +
	`"usage":{"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":3,"output_tokens":2,"output_tokens_details":{"thinking_tokens":1}}}`

func TestAnswersForClients(t *testing.T) {
	t.Parallel()
	body, err := anthropic.Codec{}.AppendResponse(nil, answer(), dialect.ResponseMeta{})
	require.NoError(t, err)
	assert.Equal(t, answerBody, string(body))
	body, err = anthropic.Codec{}.AppendResponse(nil, answer(), dialect.ResponseMeta{Model: "alias"})
	require.NoError(t, err)
	assert.Equal(t, strings.Replace(answerBody, `"model":"served"`, `"model":"alias"`, 1), string(body))
	_, err = anthropic.Codec{}.AppendResponse(nil, &modelv1.ModelOutput{}, dialect.ResponseMeta{})
	require.ErrorIs(t, err, dialect.ErrNoChoices)
	for reason, word := range map[modelv1.StopReason]string{
		modelv1.StopReason_STOP_REASON_STOP: "end_turn", modelv1.StopReason_STOP_REASON_UNKNOWN: "end_turn", modelv1.StopReason_STOP_REASON_MAX_TOKENS: "max_tokens",
		modelv1.StopReason_STOP_REASON_MODEL_LENGTH: "max_tokens", modelv1.StopReason_STOP_REASON_CONTENT_FILTER: "refusal",
	} {
		body, err := anthropic.Codec{}.AppendResponse(nil, chat.MessageOutput("m", chat.Assistant("x"), reason), dialect.ResponseMeta{})
		require.NoError(t, err)
		assert.Contains(t, string(body), `"stop_reason":"`+word+`"`)
		assert.Contains(t, string(body), `"id":"msg_`)
	}
}

// A refusal of a vendor whose answers end as any other do is one for Anthropic's clients, who look at the stop reason.
func TestARefusalIsAStopReason(t *testing.T) {
	t.Parallel()
	output := chat.MessageOutput("m", chat.Assistant(""), modelv1.StopReason_STOP_REASON_STOP)
	output.Choices[0].Message.Content = chat.ListContent(chat.RefusalPart("No."))
	body, err := anthropic.Codec{}.AppendResponse(nil, output, dialect.ResponseMeta{})
	require.NoError(t, err)
	assert.Contains(t, string(body), `"stop_reason":"refusal"`)
	var written bytes.Buffer
	w := anthropic.Codec{}.NewStreamWriter(&written, dialect.ResponseMeta{})
	require.NoError(t, w.Close(output))
	assert.Contains(t, written.String(), `"stop_reason":"refusal"`)
}

// collect reads a stream as a client does.
func collect(t *testing.T, stream string) (dialect.Response, []*modelv1.GenerateDelta) {
	t.Helper()
	s := anthropic.Codec{}.NewStreamReader()
	var deltas []*modelv1.GenerateDelta
	for event, err := range dialect.Events(strings.NewReader(stream)) {
		require.NoError(t, err)
		var typed struct{ Type string }
		require.NoError(t, json.Unmarshal(event.Data, &typed))
		assert.Equal(t, event.Type, typed.Type)
		more, err := s.Add(event)
		require.NoError(t, err)
		deltas = append(deltas, more...)
	}
	assert.True(t, s.Done())
	return s.Response(), deltas
}

func TestAStreamSaysWhatItsPiecesSay(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]bool{"piece by piece": false, "without pieces": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, err := anthropic.Codec{}.AppendResponse(nil, answer(), dialect.ResponseMeta{})
			require.NoError(t, err)
			want := decode(t, string(body))
			var written bytes.Buffer
			w := anthropic.Codec{}.NewStreamWriter(&written, dialect.ResponseMeta{ID: "msg_1", Model: "served"})
			if !whole {
				parts := want.GetChoices()[0].GetMessage().GetContent().GetList().GetParts()
				for _, d := range []*modelv1.GenerateDelta{
					{Piece: &modelv1.GenerateDelta_Reasoning{Reasoning: "Two and "}},
					{Piece: &modelv1.GenerateDelta_Reasoning{Reasoning: "two."}},
					{Piece: &modelv1.GenerateDelta_Part{Part: parts[0]}},
					{Piece: &modelv1.GenerateDelta_Part{Part: parts[1]}},
					{Piece: &modelv1.GenerateDelta_Text{Text: "Fo"}},
					{Choice: 1, Piece: &modelv1.GenerateDelta_Text{Text: "other"}},
					{Piece: &modelv1.GenerateDelta_Text{Text: "ur."}},
					{Piece: &modelv1.GenerateDelta_ToolCall{ToolCall: &modelv1.ToolCallDelta{Id: "toolu_1", Function: "add"}}},
					{Piece: &modelv1.GenerateDelta_ToolCall{ToolCall: &modelv1.ToolCallDelta{Arguments: `{"b": 1.0,`}}},
					{Piece: &modelv1.GenerateDelta_ToolCall{ToolCall: &modelv1.ToolCallDelta{Arguments: ` "a": 2}`}}},
				} {
					require.NoError(t, w.Write(d))
				}
				require.NoError(t, w.Ping())
			}
			require.NoError(t, w.Close(want))
			message, deltas := collect(t, written.String())
			got, err := message.Output(nil)
			require.NoError(t, err)
			got.Choices[0].Message.Id, want.Choices[0].Message.Id = "", ""
			assert.JSONEq(t, string(chat.OutputJSON(want)), string(chat.OutputJSON(got)))
			assert.NotEmpty(t, deltas)
		})
	}
}

func TestOpenReasoningOfOthersIsThinkingWithoutASeal(t *testing.T) {
	t.Parallel()
	m := chat.Assistant("")
	m.Content = chat.ListContent(chat.ReasoningPart("why"), chat.TextPart("so"))
	body, err := anthropic.Codec{}.AppendResponse(nil, chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_STOP), dialect.ResponseMeta{ID: "i"})
	require.NoError(t, err)
	assert.Contains(t, string(body), `[{"type":"thinking","thinking":"why","signature":""},{"type":"text","text":"so"}]`)
	var reply struct{ Content json.RawMessage }
	require.NoError(t, json.Unmarshal(body, &reply))
	r, err := anthropic.Codec{}.ParseCountRequest([]byte(`{"model":"m","messages":[{"role":"assistant","content":` + string(reply.Content) + `}]}`))
	require.NoError(t, err)
	assert.JSONEq(t, `[{"role":"assistant","content":[{"type":"reasoning","reasoning":"why","redacted":false},{"type":"text","text":"so"}]}]`, messagesJSON(t, r.Messages))
}

// Tools that the client runs, and that the vendor's models know without a description, are functions to other models;
// those that the vendor runs are refused.
func TestToolsThatTheClientRunsAreFunctions(t *testing.T) {
	t.Parallel()
	r, err := anthropic.Codec{}.ParseRequest([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"q"}],"tools":[
		{"type":"computer_20250124","name":"computer","display_width_px":1024,"display_height_px":768},{"type":"bash_20250124","name":"bash"},
		{"type":"text_editor_20250728","name":"str_replace_based_edit_tool","max_characters":9},{"type":"custom","name":"f","input_schema":{}}]}`))
	require.NoError(t, err)
	var names []string
	for _, tool := range r.Tools {
		names = append(names, tool.GetName())
	}
	assert.Equal(t, []string{"computer", "bash", "str_replace_based_edit_tool", "f"}, names)
	assert.Contains(t, r.Tools[0].GetDescription(), "1024 by 768 pixels")
	for tool, fault := range map[string]string{
		`{"type":"advisor_20260301","name":"advisor"}`: "is a tool that the vendor runs",
		`{"type":"computer_toolset_20260801"}`:         "is a tool that the vendor runs",
		`{"type":"bash_20250124"}`:                     "name",
	} {
		_, err := anthropic.Codec{}.ParseRequest([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"q"}],"tools":[` + tool + `]}`))
		assert.ErrorContains(t, err, fault, tool)
	}
}

// Clients with many tools search among them themselves: what they found refers to tools that the next request offers.
func TestAReferenceToAToolIsAText(t *testing.T) {
	t.Parallel()
	r, err := anthropic.Codec{}.ParseRequest([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"q"},
		{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"ToolSearch","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"tool_reference","tool_name":"read_file"},{"type":"tool_reference","tool_name":"grep"}]}]}]}`))
	require.NoError(t, err)
	assert.Equal(t, "Tool found: read_file\nTool found: grep", chat.Text(r.Messages[2]))
}

// Other vendors' documents have no such member, so that the model would not see it.
func TestWhatAClientSaysOfADocumentIsKept(t *testing.T) {
	t.Parallel()
	for _, source := range []string{`{"type":"text","media_type":"text/plain","data":"x"}`, `{"type":"content","content":[{"type":"text","text":"x"}]}`} {
		r, err := anthropic.Codec{}.ParseRequest([]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","context":"of 2024","source":` + source + `}]}]}`))
		require.NoError(t, err)
		parts := r.Messages[0].GetContent().GetList().GetParts()
		require.Len(t, parts, 2)
		assert.Equal(t, "Context of the next document: of 2024", parts[0].GetText().GetText())
	}
}
