package mistralconversations_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralconversations"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// say is a message with these parts.
func say(m *modelv1.ChatMessage, parts ...*contentv1.Content) *modelv1.ChatMessage {
	m.Content = chat.ListContent(parts...)
	return m
}

func use(kind contentv1.ToolUseType, result string) *contentv1.Content {
	return &contentv1.Content{Part: &contentv1.Content_ToolUse{ToolUse: &contentv1.ToolUse{ToolType: kind, Id: "t1", Name: "python", Arguments: "print(1)", Result: result}}}
}

const (
	code = contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION
	mcp  = contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL
)

func tools(names ...string) (all []*toolv1.ToolInfo) {
	for _, name := range names {
		all = append(all, &toolv1.ToolInfo{Name: name, ParametersJson: `{"type": "object"}`})
	}
	return all
}

func TestARequestIsWrittenInTheOrderThatTheVendorDocuments(t *testing.T) {
	t.Parallel()
	document := &contentv1.Document{Media: &contentv1.Media{Source: &contentv1.Media_Uri{Uri: "data:application/pdf;base64,aGk="}}, Filename: "a.pdf"}
	body, err := (&mistralconversations.Request{
		Request: dialect.Request{
			Model: "m", Stream: true,
			Messages: []*modelv1.ChatMessage{
				chat.System("Be brief."), say(chat.User(""), chat.TextPart("q"), &contentv1.Content{Part: &contentv1.Content_Document{Document: document}}), chat.System("Rhyme."),
				say(chat.Assistant("", chat.Call("c1", "add", `{"a": 1.0}`)), chat.ReasoningPart("Hm."), chat.TextPart("x"), use(code, "1"), chat.TextPart("y")),
				chat.ToolMessage(&toolv1.ToolResult{CallId: "c1", Function: "add", Error: &toolv1.ToolCallError{Message: "too slow"}}), chat.Assistant("Two."),
			},
			Tools:  tools("web_search", "code_execution", "add"),
			Choice: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY),
			Config: &modelv1.GenerateConfig{
				MaxTokens: new(int64(9)), Seed: new(int64(4)), PresencePenalty: new(0.5), FrequencyPenalty: new(0.25), ReasoningEffort: new("high"),
				ResponseSchema: &modelv1.ResponseSchema{Name: "n", JsonSchema: `{"x": 1.0}`}, ExtraBodyJson: new(`{"own": 7}`),
			},
			Members: []dialect.Member{{Name: "handoff_execution", JSON: `"client"`}},
		},
		Native: map[string]string{"web_search": mistralconversations.ToolSearch, "code_execution": mistralconversations.ToolCode},
	}).Append(nil)
	require.NoError(t, err)
	assert.Equal(t, `{"model":"m","instructions":"Be brief.\n\nRhyme.","inputs":[`+
		`{"object":"entry","type":"message.input","role":"user","content":[{"type":"text","text":"q"},{"type":"document_url","document_url":"data:application/pdf;base64,aGk=","document_name":"a.pdf"}],"prefix":false},`+
		`{"object":"entry","type":"message.output","role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]},{"type":"text","text":"x"}]},`+
		`{"object":"entry","type":"message.output","role":"assistant","content":"code_interpreter: \n\nprint(1)\n\n1"},`+
		`{"object":"entry","type":"message.output","role":"assistant","content":[{"type":"text","text":"y"}]},`+
		`{"object":"entry","type":"function.call","tool_call_id":"c1","name":"add","arguments":{"a": 1.0}},`+
		`{"object":"entry","type":"function.result","tool_call_id":"c1","result":"Error: too slow"},`+
		`{"object":"entry","type":"message.output","role":"assistant","content":"Two."}],`+
		`"tools":[{"type":"web_search"},{"type":"code_interpreter"},{"type":"function","function":{"name":"add","description":"","parameters":{"type": "object"}}}],`+
		`"completion_args":{"presence_penalty":0.5,"frequency_penalty":0.25,"max_tokens":9,"random_seed":4,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"x": 1.0}}},`+
		`"tool_choice":"required","reasoning_effort":"high"},"stream":true,"store":false,"handoff_execution":"client"}`, string(body))
}

// The API cannot name a tool, so that a named one is the only one, if it is offered at all.
func TestANamedToolIsOfferedAlone(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"b": `"tools":[{"type":"function","function":{"name":"b","description":"","parameters":{"type": "object"}}}],"completion_args":{"tool_choice":"required"}`,
		"c": `"name":"a"`,
	} {
		body, err := mistralconversations.Codec{}.AppendRequest(nil, &dialect.Request{Model: "m", Tools: tools("a", "b"), Choice: chat.FunctionChoice(name)})
		require.NoError(t, err)
		assert.Contains(t, string(body), want)
	}
}

func TestWhatAConversationCannotTake(t *testing.T) {
	t.Parallel()
	media := &contentv1.Media{Source: &contentv1.Media_Uri{Uri: "data:x/y;base64,aGk="}}
	for name, m := range map[string]*modelv1.ChatMessage{
		"audio":                 say(chat.User(""), &contentv1.Content{Part: &contentv1.Content_Audio{Audio: &contentv1.Audio{Media: media}}}),
		"a document of a model": say(chat.Assistant(""), &contentv1.Content{Part: &contentv1.Content_Document{Document: &contentv1.Document{Media: media}}}),
		"data":                  say(chat.Assistant(""), &contentv1.Content{Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: "{}"}}}),
		"a tool use of a user":  say(chat.User(""), use(code, "")),
	} {
		body, err := mistralconversations.Codec{}.AppendRequest(nil, &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{m, chat.User("q")}})
		_, ok := errors.AsType[*dialect.UnsupportedError](err)
		assert.True(t, ok, "%s: %v %s", name, err, body)
	}
}

func output(t *testing.T, body string, tools ...*toolv1.ToolInfo) *modelv1.ModelOutput {
	t.Helper()
	response, err := mistralconversations.Codec{}.DecodeResponse([]byte(body))
	require.NoError(t, err)
	got, err := response.Output(tools)
	require.NoError(t, err)
	return got
}

func TestTheEntriesOfAnAnswer(t *testing.T) {
	t.Parallel()
	got := output(t, whole(
		`{"type":"tool.execution","id":"t1","name":"web_search_premium","arguments":"{}","info":{"b": 1.0, "a": 2}}`,
		`{"type":"message.output","content":[{"type":"text","text":"Deep."},{"type":"tool_reference","tool":"web_search","title":"A","url":"https://a","description":"It is."},
			{"type":"tool_reference","tool":"web_search","title":"B","url":"https://b"},{"type":"text","text":"<think>no</think>"}]}`,
		`{"type":"tool.execution","id":"t2","name":"code_interpreter","arguments":"1"}`, `{"type":"tool.execution","id":"t3","name":"own","arguments":"2","info":{ }}`,
		`{"type":"message.output","model":"m","content":"The end."}`,
		`{"type":"function.call","tool_call_id":"c1","name":"add","arguments":"{\"a\":"}`,
	), tools("add")...)
	parts := chat.Parts(chat.FirstMessage(got).GetContent())
	require.Len(t, parts, 6)
	assert.Equal(t, []string{"web_search_premium", "{}", `{"b": 1.0, "a": 2}`}, []string{parts[0].GetToolUse().GetName(), parts[0].GetToolUse().GetArguments(), parts[0].GetToolUse().GetResult()})
	cited := parts[1].GetText().GetCitations()
	require.Len(t, cited, 2)
	assert.Equal(t, []string{"A", "https://a", "It is.", "B", "https://b", ""},
		[]string{cited[0].GetTitle(), cited[0].GetUrl(), cited[0].GetCitedText(), cited[1].GetTitle(), cited[1].GetUrl(), cited[1].GetCitedText()})
	assert.Equal(t, "<think>no</think>", parts[2].GetText().GetText(), "text is text: reasoning has a place of its own")
	assert.Equal(t, []contentv1.ToolUseType{code, mcp}, []contentv1.ToolUseType{parts[3].GetToolUse().GetToolType(), parts[4].GetToolUse().GetToolType()})
	assert.Equal(t, []string{`""`, `""`}, []string{parts[3].GetToolUse().GetResult(), parts[4].GetToolUse().GetResult()}, "no result, and one without members")
	assert.Equal(t, "The end.", parts[5].GetText().GetText())
	assert.NotEmpty(t, chat.FirstMessage(got).GetToolCalls()[0].GetParseError())
	assert.Equal(t, modelv1.StopReason_STOP_REASON_TOOL_CALLS, chat.StopReason(got))
	assert.Equal(t, []int64{10, 5, 20}, []int64{got.GetUsage().GetInputTokens(), got.GetUsage().GetOutputTokens(), got.GetUsage().GetTotalTokens()})

	empty := output(t, `{"conversation_id":"conv_1","outputs":[],"usage":{"prompt_tokens":3,"total_tokens":5}}`)
	assert.Empty(t, chat.Parts(chat.FirstMessage(empty).GetContent()))
	assert.Equal(t, int64(2), empty.GetUsage().GetOutputTokens(), "what is not of the input is of the output")
}
