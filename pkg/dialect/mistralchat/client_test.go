package mistralchat_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralchat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// appended returns the body of a request.
func appended(t *testing.T, r *dialect.Request) string {
	t.Helper()
	body, err := mistralchat.Codec{}.AppendRequest(nil, r)
	require.NoError(t, err)
	return string(body)
}

// say is a message with these parts.
func say(m *modelv1.ChatMessage, parts ...*contentv1.Content) *modelv1.ChatMessage {
	m.Content = chat.ListContent(parts...)
	return m
}

func TestARequestIsWrittenInTheOrderThatTheVendorDocuments(t *testing.T) {
	t.Parallel()
	got := appended(t, &dialect.Request{
		Model: "m", Stream: true,
		Messages: []*modelv1.ChatMessage{
			chat.System("s"), chat.User(""), say(chat.Assistant("", chat.Call("c1", "add", `{"a": 1.0}`)), chat.ReasoningPart("Hm."), chat.TextPart("")),
			chat.ToolMessage(&toolv1.ToolResult{CallId: "c1", Function: "add", Error: &toolv1.ToolCallError{Message: "too slow"}}),
			chat.Assistant("Two."),
		},
		Tools:  []*toolv1.ToolInfo{{Name: "add", Description: "Adds.", ParametersJson: `{"type": "object"}`}},
		Choice: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY),
		Config: &modelv1.GenerateConfig{
			MaxTokens: new(int64(9)), TopK: new(int32(3)), Seed: new(int64(4)), NumChoices: new(int32(2)), ReasoningEffort: new("high"), ParallelToolCalls: new(false),
			ResponseSchema: &modelv1.ResponseSchema{Name: "n", JsonSchema: `{"x": 1.0}`, Strict: new(true)}, ExtraBodyJson: new(`{"own": 7}`),
		},
	})
	assert.Equal(t, `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"(no content)"},`+
		`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]},{"type":"text","text":"(no content)"}],`+
		`"tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\": 1.0}"},"index":0}],"prefix":false},`+
		`{"role":"tool","name":"add","content":"Error: too slow","tool_call_id":"c1"},{"role":"assistant","content":"Two.","prefix":false}],`+
		`"tools":[{"type":"function","function":{"name":"add","description":"Adds.","parameters":{"type": "object"}}}],"tool_choice":"any","parallel_tool_calls":false,`+
		`"max_tokens":9,"top_k":3,"random_seed":4,"n":2,"reasoning_effort":"high",`+
		`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"x": 1.0},"strict":true}},"stream":true}`, got)
}

// The API refuses a user's message after a tool's result, so that it becomes a part of the result.
func TestAUsersMessageAfterAToolsResult(t *testing.T) {
	t.Parallel()
	result := chat.ToolMessage(&toolv1.ToolResult{CallId: "c1", Function: "look", Content: chat.TextContent("see below")})
	got := appended(t, &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{
		result, say(chat.User(""), chat.ImagePart("data:image/png;base64,aGk=")), chat.User("And?"), chat.Assistant("A cat."), chat.User("Why?"),
	}})
	assert.Contains(t, got, `"messages":[{"role":"tool","name":"look","content":[{"type":"text","text":"see below"},`+
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk=","detail":"auto"}},{"type":"text","text":"And?"}],"tool_call_id":"c1"},`+
		`{"role":"assistant","content":"A cat.","prefix":false},{"role":"user","content":"Why?"}]`)
}

// Content of which no part is left, as of a model that thought and called a tool, is that of an empty text.
func TestContentWithoutParts(t *testing.T) {
	t.Parallel()
	got := appended(t, &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{chat.User("u"), say(chat.Assistant("", chat.Call("c1", "f", "{}")))}})
	assert.Contains(t, got, `{"role":"assistant","content":"(no content)","tool_calls":[`)
}

func TestWhatChatCompletionsCannotTake(t *testing.T) {
	t.Parallel()
	media := &contentv1.Media{Source: &contentv1.Media_Uri{Uri: "data:x/y;base64,aGk="}}
	for name, part := range map[string]*contentv1.Content{
		"audio":      {Part: &contentv1.Content_Audio{Audio: &contentv1.Audio{Media: media}}},
		"a document": {Part: &contentv1.Content_Document{Document: &contentv1.Document{Media: media}}},
		"a tool use": {Part: &contentv1.Content_ToolUse{ToolUse: &contentv1.ToolUse{}}},
		"data":       {Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: "{}"}}},
	} {
		result := chat.ToolMessage(&toolv1.ToolResult{CallId: "c1", Function: "look", Content: chat.TextContent("x")})
		for _, messages := range [][]*modelv1.ChatMessage{{say(chat.User(""), part)}, {say(chat.Assistant(""), part)}, {result, say(chat.User(""), part)}} {
			_, err := mistralchat.Codec{}.AppendRequest(nil, &dialect.Request{Model: "m", Messages: messages})
			_, ok := errors.AsType[*dialect.UnsupportedError](err)
			assert.True(t, ok, "%s: %v", name, err)
		}
	}
}

// output decodes an answer with one choice.
func output(t *testing.T, choice string) *modelv1.ModelOutput {
	t.Helper()
	response, err := mistralchat.Codec{}.DecodeResponse([]byte(`{"id":"x","model":"m","choices":[` + choice + `]}`))
	require.NoError(t, err)
	got, err := response.Output(nil)
	require.NoError(t, err)
	return got
}

func TestTheChunksOfAnAnswer(t *testing.T) {
	t.Parallel()
	got := output(t, `{"finish_reason":"model_length","message":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"a"},{"type":"reference","reference_ids":[1]},{"type":"text","text":"b"}]},
		{"type":"text","text":"<think>c</think>d"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk=","detail":"low"}},{"type":"image_url","image_url":"https://x/y.png"},
		{"type":"document_url","document_url":"https://d"},{"type":"file","file_id":"f1"},{"type":"reference","reference_ids":[1]}]}}`)
	var parts []string
	for _, part := range chat.Parts(chat.FirstMessage(got).GetContent()) {
		parts = append(parts, strings.Join([]string{part.GetText().GetText(), part.GetReasoning().GetReasoning(), part.GetImage().GetMedia().GetUri()}, "|"))
	}
	assert.Equal(t, []string{"|a\nb|", "|c|", "d||", "||data:image/png;base64,aGk=", "image that was not fetched: https://x/y.png||", "https://d||", "file: f1||"}, parts)
	assert.Equal(t, modelv1.StopReason_STOP_REASON_MODEL_LENGTH, chat.StopReason(got))
	for finish, want := range map[string]modelv1.StopReason{
		"stop": modelv1.StopReason_STOP_REASON_STOP, "length": modelv1.StopReason_STOP_REASON_MAX_TOKENS, "tool_calls": modelv1.StopReason_STOP_REASON_TOOL_CALLS,
		"content_filter": modelv1.StopReason_STOP_REASON_CONTENT_FILTER, "error": modelv1.StopReason_STOP_REASON_UNKNOWN, "": modelv1.StopReason_STOP_REASON_UNKNOWN,
	} {
		assert.Equal(t, want, chat.StopReason(output(t, `{"finish_reason":"`+finish+`","message":{"content":"x"}}`)), finish)
	}
}

func TestAStreamIsCompleteWhenAllItsChoicesAre(t *testing.T) {
	t.Parallel()
	dialecttest.CompleteChoices(t, mistralchat.Codec{})
}
