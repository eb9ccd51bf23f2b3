package anthropic_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func assistantSays(parts ...*contentv1.Content) *modelv1.ChatMessage {
	m := chat.Assistant("")
	m.Content = chat.ListContent(parts...)
	return m
}

func sealedThinking(text, seal string) *contentv1.Content {
	return &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: seal, Summary: &text, Redacted: true}}}
}

// conversation is one of every kind of turn.
func conversation() *anthropic.Request {
	asks := assistantSays(sealedThinking("hm", "c2ln"), chat.TextPart("Let me see."))
	asks.ToolCalls = []*toolv1.ToolCall{call("t1", "weather", `{"city": "Oslo", "n": 1.0}`), call("t2", "weather", "")}
	failed := chat.ToolMessage(&toolv1.ToolResult{CallId: "t2", Function: "weather", Error: &toolv1.ToolCallError{Message: "late"}})
	return &anthropic.Request{
		Request: dialect.Request{
			Model:  "claude",
			Stream: true,
			Messages: []*modelv1.ChatMessage{
				chat.System("Be brief."), chat.User("Weather?"), asks,
				chat.ToolMessage(&toolv1.ToolResult{CallId: "t1", Function: "weather", Content: chat.TextContent("rain")}), failed, chat.User("So?"),
			},
			Tools:   []*toolv1.ToolInfo{{Name: "weather", Description: "Tells it.", ParametersJson: `{"type": "object", "z": 1e2}`}},
			Choice:  chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY),
			Config:  &modelv1.GenerateConfig{MaxTokens: new(int64(9)), ParallelToolCalls: new(false), Effort: new("low"), StopSeqs: &modelv1.StringList{Values: []string{"END"}}},
			Members: []dialect.Member{{Name: "metadata", JSON: `{"user_id": "u"}`}},
		},
		Cache:    anthropic.Cache{Automatic: true, TTL: "1h"},
		Thinking: &anthropic.Thinking{Type: "enabled", BudgetTokens: 7, Display: "summarized"},
	}
}

const conversationBody = `{"model":"claude","max_tokens":9,"stop_sequences":["END"],"output_config":{"effort":"low"},"stream":true,` +
	`"cache_control":{"type":"ephemeral","ttl":"1h"},"thinking":{"type":"enabled","budget_tokens":7,"display":"summarized"},"metadata":{"user_id": "u"},` +
	`"tools":[{"name":"weather","description":"Tells it.","input_schema":{"type": "object", "z": 1e2},"cache_control":{"type":"ephemeral","ttl":"1h"}}],` +
	`"tool_choice":{"type":"any","disable_parallel_tool_use":true},"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral","ttl":"1h"}}],` +
	`"messages":[{"role":"user","content":"Weather?"},` +
	`{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","text":"Let me see."},` +
	`{"type":"tool_use","id":"t1","name":"weather","input":{"city": "Oslo", "n": 1.0}},{"type":"tool_use","id":"t2","name":"weather","input":{}}]},` +
	`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"rain"}],"is_error":false},` +
	`{"type":"tool_result","tool_use_id":"t2","content":"late","is_error":true,"cache_control":{"type":"ephemeral","ttl":"1h"}},{"type":"text","text":"So?"}]}]}`

func TestRequestsAreWrittenInOneOrderAndKeepTheJSONOfOthers(t *testing.T) {
	t.Parallel()
	for range 3 {
		body, err := conversation().Append(nil)
		require.NoError(t, err)
		require.Equal(t, conversationBody, string(body))
	}
	body, err := conversation().AppendCount(nil)
	require.NoError(t, err)
	assert.NotContains(t, string(body), "max_tokens", "a count takes no options")
	assert.NotContains(t, string(body), `"stream"`)
	assert.Contains(t, string(body), `"messages":[{"role":"user","content":"Weather?"}`)
}

func TestALongerConversationBeginsWithTheBytesOfAShorterOne(t *testing.T) {
	t.Parallel()
	r := conversation()
	r.Cache.Off = true
	shorter, err := r.Append(nil)
	require.NoError(t, err)
	r.Messages = append(r.Messages, chat.Assistant("Wet."), chat.User("Thanks."))
	longer, err := r.Append(nil)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(longer), strings.TrimSuffix(string(shorter), "]}")))
}

func TestWhatARequestSaysAClientCanRead(t *testing.T) {
	t.Parallel()
	body, err := conversation().Append(nil)
	require.NoError(t, err)
	read, err := anthropic.Codec{}.ParseRequest(body)
	require.NoError(t, err)
	want := conversation()
	assert.Equal(t, want.Tools[0].GetParametersJson(), read.Tools[0].GetParametersJson())
	assert.Equal(t, want.Choice.GetMode(), read.Choice.GetMode())
	assert.Equal(t, int64(7), read.Config.GetReasoningTokens())
	assert.Len(t, read.Messages, len(want.Messages))
	assert.Equal(t, `{"city": "Oslo", "n": 1.0}`, read.Messages[2].GetToolCalls()[0].GetArgumentsJson())
}

func TestMarksOfTheMessagesComeBeforeOurs(t *testing.T) {
	t.Parallel()
	marked := func(n int) *anthropic.Request {
		var parts []*contentv1.Content
		for range n {
			part := chat.TextPart("x")
			part.GetText().CacheBreakpoint = new(true)
			parts = append(parts, part)
		}
		m := chat.User("")
		m.Content = chat.ListContent(append(parts, chat.TextPart("end"))...)
		return &anthropic.Request{
			Request: dialect.Request{
				Model:    "m",
				Messages: []*modelv1.ChatMessage{chat.System("s"), m},
				Tools:    []*toolv1.ToolInfo{{Name: "t"}},
			},
			Cache: anthropic.Cache{Automatic: true},
		}
	}
	for n, want := range map[int]int{1: 3, 2: 4, 3: 4, 4: 4} {
		body, err := marked(n).Append(nil)
		require.NoError(t, err)
		assert.Equal(t, want, strings.Count(string(body), "cache_control"), "%d marks", n)
	}
	_, err := marked(5).Append(nil)
	require.ErrorContains(t, err, "cache breakpoints")
	off := marked(5)
	off.Cache.Off = true
	body, err := off.Append(nil)
	require.NoError(t, err)
	assert.NotContains(t, string(body), "cache_control")
}

func marked(text string) *contentv1.Content {
	part := chat.TextPart(text)
	part.GetText().CacheBreakpoint = new(true)
	return part
}

func withParts(m *modelv1.ChatMessage, parts ...*contentv1.Content) *modelv1.ChatMessage {
	m.Content = chat.ListContent(parts...)
	return m
}

func TestMarksThatHaveNoPlaceTakeAllOthersWithThem(t *testing.T) {
	t.Parallel()
	asks := chat.Assistant("", call("t", "f", "{}"))
	result := withParts(chat.ToolMessage(&toolv1.ToolResult{CallId: "t", Function: "f"}), marked("r"))
	question := withParts(chat.User(""), marked("q"), chat.TextPart("end"))
	for name, test := range map[string]struct {
		messages []*modelv1.ChatMessage
		kept     bool
	}{
		"all have one":      {[]*modelv1.ChatMessage{withParts(chat.System(""), marked("s")), question}, true},
		"an empty text":     {[]*modelv1.ChatMessage{question, withParts(chat.User(""), marked(""))}, false},
		"a tool's result":   {[]*modelv1.ChatMessage{question, asks, result}, false},
		"a system message":  {[]*modelv1.ChatMessage{question, withParts(chat.System(""), marked("s"))}, false},
		"of a former model": {[]*modelv1.ChatMessage{question, withParts(chat.Assistant(""), marked("a"))}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arranged, _ := anthropic.Arrange(test.messages, true)
			body, err := (&anthropic.Request{Request: dialect.Request{Messages: arranged}}).Append(nil)
			require.NoError(t, err)
			assert.Equal(t, test.kept, strings.Contains(string(body), `"text":"q","cache_control"`), "%s", body)
			assert.True(t, test.messages[0].GetContent().GetList().GetParts()[0].GetText().GetCacheBreakpoint(), "the caller's messages stay as they are")
		})
	}
}

func TestInstructionsArePartedAtTheirMarks(t *testing.T) {
	t.Parallel()
	r := &anthropic.Request{
		Request: dialect.Request{
			Messages: []*modelv1.ChatMessage{
				chat.System(""), withParts(chat.System(""), chat.TextPart("a"), marked("b"), chat.TextPart("c"), chat.TextPart("d")), chat.Assistant("x"), chat.User("q"),
			},
		},
		Cache: anthropic.Cache{Automatic: true},
	}
	body, err := r.Append(nil)
	require.NoError(t, err)
	assert.Contains(t, string(body), `"system":[{"type":"text","text":"a\nb","cache_control":{"type":"ephemeral"}},{"type":"text","text":"c\nd"}]`)
	assert.Equal(t, 1, strings.Count(string(body), "cache_control"), "marks of the author stand alone")
}

func TestWhatTakesTheMarkBeforeTheLastBlock(t *testing.T) {
	t.Parallel()
	use := &contentv1.ToolUse{ToolType: contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL, Id: "m", Name: "look", Context: new("srv"), Arguments: "{}", Result: "found"}
	data := func(document string) *contentv1.Content {
		return &contentv1.Content{Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: document}}}
	}
	for name, test := range map[string]struct {
		part *contentv1.Content
		want string
	}{
		"a server's tool": {&contentv1.Content{Part: &contentv1.Content_ToolUse{ToolUse: use}}, `"content":"found","cache_control":{"type":"ephemeral"}}`},
		"a summary":       {data(`{"compaction_metadata":{"type":"anthropic_compact","content":"s"}}`), `"content":"s","cache_control":{"type":"ephemeral"}}`},
		"a hand-over":     {data(`{"fallback_metadata":{"type":"anthropic_fallback"}}`), `"text":"said","cache_control":{"type":"ephemeral"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &anthropic.Request{Request: dialect.Request{Messages: []*modelv1.ChatMessage{chat.User("q"), assistantSays(chat.TextPart("said"), test.part), chat.User("q")}}}
			body, err := r.Append(nil)
			require.NoError(t, err)
			assert.Contains(t, string(body), test.want)
		})
	}
}

func TestDocumentsAreCitedAllOrNone(t *testing.T) {
	t.Parallel()
	document := func(cited bool) *contentv1.Content {
		media := &contentv1.Media{Source: &contentv1.Media_Uri{Uri: "data:application/pdf;base64,AA=="}}
		return &contentv1.Content{Part: &contentv1.Content_Document{Document: &contentv1.Document{Media: media, Filename: "a.pdf", Citations: cited}}}
	}
	for _, test := range []struct{ first, second bool }{{false, false}, {true, false}, {false, true}} {
		r := &anthropic.Request{Request: dialect.Request{Messages: []*modelv1.ChatMessage{withParts(chat.User(""), document(test.first)), chat.Assistant("x"), withParts(chat.User(""), document(test.second))}}}
		body, err := r.Append(nil)
		require.NoError(t, err)
		want := 0
		if test.first || test.second {
			want = 2
		}
		assert.Equal(t, want, strings.Count(string(body), `"citations":{"enabled":true}`))
	}
	failed := withParts(chat.ToolMessage(&toolv1.ToolResult{CallId: "t", Function: "f", Error: &toolv1.ToolCallError{Message: "late"}}), document(true))
	r := &anthropic.Request{Request: dialect.Request{Messages: []*modelv1.ChatMessage{withParts(chat.User(""), document(false)), failed}}}
	body, err := r.Append(nil)
	require.NoError(t, err)
	assert.NotContains(t, string(body), "citations", "a document beside a failure is not sent")
}

func TestAFailureThatSaysNothingIsSaidByWhatTheToolGave(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		content *contentv1.MessageContent
		message string
		want    string
	}{
		"a message":   {chat.TextContent("gave"), "late", "late"},
		"a content":   {chat.TextContent("gave"), "", "gave"},
		"nothing":     {chat.TextContent(""), "", "error"},
		"an image":    {chat.ListContent(chat.ImagePart("data:image/png;base64,AA==")), "", "error"},
		"no contents": {chat.ListContent(), "", "(no content)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := chat.ToolMessage(&toolv1.ToolResult{CallId: "t", Function: "f", Content: test.content, Error: &toolv1.ToolCallError{Message: test.message}})
			m.Content = test.content
			body, err := (&anthropic.Request{Request: dialect.Request{Messages: []*modelv1.ChatMessage{m}}}).Append(nil)
			require.NoError(t, err)
			assert.Contains(t, string(body), `"content":"`+test.want+`","is_error":true`)
		})
	}
}

func TestASchemaOfAnswersIsClosedAndHasNoBounds(t *testing.T) {
	t.Parallel()
	r := &anthropic.Request{
		Request: dialect.Request{
			Config: &modelv1.GenerateConfig{ResponseSchema: &modelv1.ResponseSchema{
				Name: "a", JsonSchema: `{"type":"object","properties":{"n":{"type":"integer","minimum":1,"maximum":2},"s":{"type":"array","items":{"type":"string","pattern":"a","minLength":1}}}}`,
			}},
		},
	}
	body, err := r.Append(nil)
	require.NoError(t, err)
	assert.Contains(t, string(body), `"schema":{"type":"object","properties":{"n":{"type":"integer","additionalProperties":false},`+
		`"s":{"type":"array","items":{"type":"string","additionalProperties":false},"additionalProperties":false}},"additionalProperties":false}`)
}

// A schema that refers to others has its members there.
func TestAReferenceToASchemaIsNotClosed(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"at":{"$ref":"#/$defs/place"},"or":{"anyOf":[{"$ref":"#/$defs/place"},{"type":"null"}]}},` +
		`"$defs":{"place":{"type":"object","properties":{"x":{"$ref":"#/$defs/place"}}}}}`
	body, err := anthropic.Codec{}.AppendRequest(nil, &dialect.Request{Config: &modelv1.GenerateConfig{ResponseSchema: &modelv1.ResponseSchema{Name: "a", JsonSchema: schema}}})
	require.NoError(t, err)
	assert.Contains(t, string(body), `"properties":{"at":{"$ref":"#/$defs/place"},"or":{"anyOf":[{"$ref":"#/$defs/place"},{"type":"null","additionalProperties":false}]}},`+
		`"$defs":{"place":{"type":"object","properties":{"x":{"$ref":"#/$defs/place"}},"additionalProperties":false}},"additionalProperties":false}`)
}

func TestWhereSystemMessagesGo(t *testing.T) {
	t.Parallel()
	asks := chat.Assistant("", call("t", "f", "{}"))
	result := chat.ToolMessage(&toolv1.ToolResult{CallId: "t", Function: "f", Content: chat.TextContent("r")})
	used := assistantSays(&contentv1.Content{Part: &contentv1.Content_ToolUse{ToolUse: &contentv1.ToolUse{ToolType: contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL, Id: "m", Name: "n"}}})
	s, u, a := chat.System, chat.User, chat.Assistant
	roles := func(messages []*modelv1.ChatMessage) string {
		said := ""
		for _, m := range messages {
			said += chat.RoleName(m.GetRole())[:1] + "(" + strings.NewReplacer("<system-reminder>\n", "<", "\n</system-reminder>", ">", "\n", "/").Replace(chat.Text(m)) + ")"
		}
		return said
	}
	for name, test := range map[string]struct {
		messages         []*modelv1.ChatMessage
		inline, reminder string
	}{
		"first":                  {[]*modelv1.ChatMessage{s("1"), s("2"), u("q")}, "s(1)s(2)u(q)", "s(1)s(2)u(q)"},
		"only":                   {[]*modelv1.ChatMessage{s("1")}, "s(1)", "s(1)"},
		"before the model":       {[]*modelv1.ChatMessage{u("q"), s("1"), s("2"), a("x")}, "u(q)s(1//2)a(x)", "u(q)u(<1>)u(<2>)a(x)"},
		"at the end":             {[]*modelv1.ChatMessage{u("q"), s("1")}, "u(q)s(1)", "u(q)u(<1>)"},
		"before the user":        {[]*modelv1.ChatMessage{u("q"), a("x"), s("1"), u("q")}, "s(1)u(q)a(x)u(q)", "u(q)a(x)u(<1>)u(q)"},
		"behind a tool's result": {[]*modelv1.ChatMessage{u("q"), asks, result, s("1")}, "u(q)a()t(r)s(1)", "s(1)u(q)a()t(r)"},
		"before a tool's result": {[]*modelv1.ChatMessage{u("q"), asks, s("1"), result}, "s(1)u(q)a()t(r)", "s(1)u(q)a()t(r)"},
		"behind a lost result":   {[]*modelv1.ChatMessage{u("q"), result, s("1")}, "u(q)u([Tool result for f]/r)s(1)", "u(q)u([Tool result for f]/r)u(<1>)"},
		"behind a server's tool": {[]*modelv1.ChatMessage{u("q"), used, s("1")}, "u(q)a()s(1)", "u(q)a()u(<1>)"},
		"nothing to say":         {[]*modelv1.ChatMessage{u("q"), s("")}, "u(q)s()", "u(q)u(<>)"},
		"a result without call":  {[]*modelv1.ChatMessage{u("q"), result}, "u(q)u([Tool result for f]/r)", "u(q)u([Tool result for f]/r)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arranged, warnings := anthropic.Arrange(test.messages, true)
			assert.Equal(t, test.inline, roles(arranged))
			assert.Equal(t, roles(test.messages)[:1] != test.inline[:1], len(warnings) > 0)
			arranged, _ = anthropic.Arrange(test.messages, false)
			assert.Equal(t, test.reminder, roles(arranged))
		})
	}
}

// The server takes ids of letters, digits, `_` and `-` alone.
func TestIDsOfOtherVendorsCallsAreThoseOfTheServer(t *testing.T) {
	t.Parallel()
	call := chat.Call("functions.f:0", "f", "{}")
	messages := []*modelv1.ChatMessage{chat.User("q"), chat.Assistant("", call), chat.ToolMessage(&toolv1.ToolResult{CallId: call.GetId(), Function: "f", Content: chat.TextContent("r")})}
	body, err := anthropic.Codec{}.AppendRequest(nil, &dialect.Request{Model: "m", Messages: messages, Tools: []*toolv1.ToolInfo{{Name: "f", ParametersJson: `{"type":"object"}`}}, Config: &modelv1.GenerateConfig{MaxTokens: new(int64(9))}})
	require.NoError(t, err)
	assert.NotContains(t, string(body), "functions.f:0")
	assert.Equal(t, 2, strings.Count(string(body), dialect.PlainCallID(call.GetId(), 64)), "%s", body)
}

func TestWhatTheFormatCannotSay(t *testing.T) {
	t.Parallel()
	uri := func(u string) *contentv1.Media { return &contentv1.Media{Source: &contentv1.Media_Uri{Uri: u}} }
	for says, part := range map[string]*contentv1.Content{
		"audio":                    {Part: &contentv1.Content_Audio{Audio: &contentv1.Audio{Media: uri("data:audio/wav;base64,AA=="), Format: contentv1.AudioFormat_AUDIO_FORMAT_WAV}}},
		"video":                    {Part: &contentv1.Content_Video{Video: &contentv1.Video{Media: uri("data:video/mp4;base64,AA=="), Format: contentv1.VideoFormat_VIDEO_FORMAT_MP4}}},
		"image/svg+xml":            chat.ImagePart("data:image/svg+xml;base64,AA=="),
		"data of another provider": {Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: `{"x":1}`}}},
		"an unknown kind":          {},
	} {
		m := chat.User("")
		m.Content = chat.ListContent(part)
		_, err := (&anthropic.Request{Request: dialect.Request{Messages: []*modelv1.ChatMessage{m}}}).Append(nil)
		failure, ok := errors.AsType[*dialect.UnsupportedError](err)
		require.True(t, ok, "%s: %v", says, err)
		assert.Contains(t, failure.Error(), says)
	}
}

func TestJSONOfOthersCannotBreakOutOfItsPlace(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*anthropic.Request{
		"arguments":          {Request: dialect.Request{Messages: []*modelv1.ChatMessage{chat.Assistant("", call("t", "f", `{}},{"role":"user"`))}}},
		"a tool's schema":    {Request: dialect.Request{Tools: []*toolv1.ToolInfo{{Name: "f", ParametersJson: `{}, "x": {}`}}}},
		"an answer's schema": {Request: dialect.Request{Config: &modelv1.GenerateConfig{ResponseSchema: &modelv1.ResponseSchema{JsonSchema: `true`}}}},
	} {
		_, err := r.Append(nil)
		_, ok := errors.AsType[*dialect.UnsupportedError](err)
		assert.True(t, ok, "%s: %v", name, err)
	}
}

func TestMediaByAddress(t *testing.T) {
	t.Parallel()
	m := chat.User("")
	m.Content = chat.ListContent(chat.ImagePart("https://x.example/a.png"), &contentv1.Content{Part: &contentv1.Content_Document{Document: &contentv1.Document{
		Media: &contentv1.Media{Source: &contentv1.Media_Uri{Uri: "https://x.example/a.pdf"}}, Filename: "a.pdf", Citations: true,
	}}})
	body, err := (&anthropic.Request{Request: dialect.Request{Messages: []*modelv1.ChatMessage{m}}, Cache: anthropic.Cache{Off: true}}).Append(nil)
	require.NoError(t, err)
	assert.Contains(t, string(body), `[{"type":"image","source":{"type":"url","url":"https://x.example/a.png"}},`+
		`{"type":"document","source":{"type":"url","url":"https://x.example/a.pdf"},"title":"a.pdf","citations":{"enabled":true}}]`)
}

// decode reads an answer of the vendor.
func decode(t *testing.T, body string) *modelv1.ModelOutput {
	t.Helper()
	response, err := anthropic.Codec{}.DecodeResponse([]byte(body))
	require.NoError(t, err)
	output, err := response.Output(nil)
	require.NoError(t, err)
	return output
}

// again sends what a model said back to it, and returns the blocks.
func again(t *testing.T, content string) string {
	t.Helper()
	output := decode(t, `{"content":`+content+`}`)
	r := &anthropic.Request{Request: dialect.Request{Messages: []*modelv1.ChatMessage{chat.User("q"), chat.FirstMessage(output)}}, Cache: anthropic.Cache{Off: true}}
	body, err := r.Append(nil)
	require.NoError(t, err)
	var sent struct {
		Messages []struct{ Content json.RawMessage }
	}
	require.NoError(t, json.Unmarshal(body, &sent))
	return string(sent.Messages[1].Content)
}

// The API takes pictures in the user's turns alone: those of a model's message follow it there, behind the results of
// its calls.
func TestPicturesOfAModelsMessageAreInTheUsersTurn(t *testing.T) {
	t.Parallel()
	const uri = "data:image/png;base64,iVBORw0KGgo="
	const image = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}`
	const label = `{"type":"text","text":"Attached to the assistant's message above:"}`
	drew := func(calls ...*toolv1.ToolCall) *modelv1.ChatMessage {
		m := assistantSays(chat.TextPart("Here:"), chat.ImagePart(uri))
		m.ToolCalls = calls
		return m
	}
	for name, c := range map[string]struct {
		messages []*modelv1.ChatMessage
		want     string
	}{
		"before the user": {
			[]*modelv1.ChatMessage{chat.User("Draw."), drew(), chat.User("And?")},
			`[{"role":"user","content":"Draw."},{"role":"assistant","content":[{"type":"text","text":"Here:"}]},
			{"role":"user","content":[` + label + `,` + image + `,{"type":"text","text":"And?"}]}]`,
		},
		"with a call": {
			[]*modelv1.ChatMessage{
				drew(call("c", "f", "{}")),
				chat.ToolMessage(&toolv1.ToolResult{CallId: "c", Function: "f", Content: chat.TextContent("r")}), chat.User("And?"),
			},
			`[{"role":"assistant","content":[{"type":"text","text":"Here:"},{"type":"tool_use","id":"c","name":"f","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"r"}],"is_error":false},
			` + label + `,` + image + `,{"type":"text","text":"And?"}]}]`,
		},
		"alone, and last": {
			[]*modelv1.ChatMessage{chat.User("Draw."), assistantSays(chat.ImagePart(uri))},
			`[{"role":"user","content":"Draw."},{"role":"assistant","content":[{"type":"text","text":"(no content)"}]},
			{"role":"user","content":[` + label + `,` + image + `]}]`,
		},
	} {
		body, err := (&anthropic.Request{Request: dialect.Request{Messages: c.messages}, Cache: anthropic.Cache{Off: true}}).Append(nil)
		require.NoError(t, err)
		var sent struct{ Messages json.RawMessage }
		require.NoError(t, json.Unmarshal(body, &sent))
		assert.JSONEq(t, c.want, string(sent.Messages), name)
	}
}

func TestWhatAModelSaidGoesBackAsItCame(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"thinking":    `[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"thinking","thinking":"","signature":"b"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"a"}]`,
		"a search":    `[{"type":"server_tool_use","id":"srvtoolu_s","name":"web_search","input":{"query":"q"}},{"type":"web_search_tool_result","tool_use_id":"srvtoolu_s","content":[{"type":"web_search_result","url":"u","encrypted_content":"e"}]},{"type":"text","text":"a"}]`,
		"code":        `[{"type":"server_tool_use","id":"s","name":"bash_code_execution","input":{"command":"c"}},{"type":"bash_code_execution_tool_result","tool_use_id":"s","content":{"type":"bash_code_execution_result","stdout":"1","stderr":"","return_code":0,"content":[]}},{"type":"text","text":"a"}]`,
		"an mcp tool": `[{"type":"mcp_tool_use","id":"mcptoolu_s","name":"f","server_name":"srv","input":{"q":1}},{"type":"mcp_tool_result","tool_use_id":"mcptoolu_s","is_error":false,"content":[{"type":"text","text":"r"}]},{"type":"text","text":"a"}]`,
		"citations": `[{"type":"text","text":"a","citations":[{"type":"web_search_result_location","cited_text":"c","title":"t","url":"u","encrypted_index":"E"},` +
			`{"type":"char_location","cited_text":"d","document_index":0,"document_title":"w","start_char_index":0,"end_char_index":2},` +
			`{"type":"page_location","cited_text":"d","document_index":1,"document_title":"w","start_page_number":1,"end_page_number":2}]}]`,
		"a compaction": `[{"type":"compaction","content":"c"},{"type":"text","text":"a"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.JSONEq(t, content, again(t, content))
		})
	}
}

// Of a search without results in the format, such as one that failed with another provider, it is not said that it
// found nothing.
func TestASearchWithoutAResultFailed(t *testing.T) {
	t.Parallel()
	const failed, page = `{"type":"web_search_tool_result_error","error_code":"unavailable"}`,
		`[{"type":"web_search_result","url":"u","title":"t","encrypted_content":"e"}]`
	for result, want := range map[string]string{"": failed, "found": failed, "[]": "[]", `[{"url":"u"}]`: failed, page: page} {
		use := &contentv1.ToolUse{ToolType: contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH, Id: "s", Name: "web_search", Arguments: "{}", Result: result}
		r := &anthropic.Request{Request: dialect.Request{Messages: []*modelv1.ChatMessage{
			chat.User("q"), {Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(chat.ToolUsePart(use))},
		}}}
		body, err := r.Append(nil)
		require.NoError(t, err)
		assert.Contains(t, string(body), `"type":"web_search_tool_result","tool_use_id":"srvtoolu_s","content":`+want, "%q", result)
	}
}

// An answer that took several passes has the usage of all, unless another model answered in place of the first.
func TestTheUsageOfAllPassesCounts(t *testing.T) {
	t.Parallel()
	const compacted, said = `{"type":"compaction","input_tokens":100,"output_tokens":20,"cache_creation_input_tokens":5,"cache_read_input_tokens":7}`,
		`{"type":"message","input_tokens":11,"output_tokens":3,"cache_creation_input_tokens":1,"cache_read_input_tokens":2}`
	for iterations, want := range map[string][]int64{
		compacted + "," + said: {111, 23, 6, 9, 149},
		said:                   {11, 3, 1, 2, 17},
		"":                     {10, 2, 0, 0, 12},
		`{}`:                   {10, 2, 0, 0, 12},
		`{"input_tokens":4,"output_tokens":1,"cache_read_input_tokens":0}`:        {4, 1, 0, 0, 5},
		said + `,{"type":"fallback_message","input_tokens":10,"output_tokens":2}`: {10, 2, 0, 0, 12},
	} {
		got := decode(t, `{"content":[{"type":"text","text":"a"}],"usage":{"input_tokens":10,"output_tokens":2,"iterations":[`+iterations+`]}}`).GetUsage()
		assert.Equal(t, want, []int64{
			got.GetInputTokens(), got.GetOutputTokens(), got.GetInputTokensCacheWrite(), got.GetInputTokensCacheRead(), got.GetTotalTokens(),
		}, iterations)
	}
}

func TestErrorsThatAreOutputs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		text   string
		stop   modelv1.StopReason
	}{
		{400, "prompt is too long: 9 > 8", modelv1.StopReason_STOP_REASON_MODEL_LENGTH},
		{400, "Input is too long for requested model.", modelv1.StopReason_STOP_REASON_MODEL_LENGTH},
		{413, "anything", modelv1.StopReason_STOP_REASON_MODEL_LENGTH},
		{400, "Output blocked by content filtering policy", modelv1.StopReason_STOP_REASON_CONTENT_FILTER},
	} {
		output, ok := anthropic.Codec{}.Stopped(test.status, &dialect.Error{Message: test.text}, "m")
		require.True(t, ok, test.text)
		assert.Equal(t, test.stop, chat.StopReason(output))
		assert.Equal(t, test.text, output.GetError())
	}
	_, ok := anthropic.Codec{}.Stopped(400, &dialect.Error{Message: "Bad parameter."}, "m")
	assert.False(t, ok)
	unsaid, ok := anthropic.Codec{}.Stopped(413, &dialect.Error{}, "m")
	assert.True(t, ok)
	assert.Equal(t, "the request is too large", unsaid.GetCompletion())
	assert.Equal(t, "m", anthropic.Codec{}.DecodeError([]byte(`{"message":"m"}`)).Message, "as what is in between says it")
}

func TestErrorsForClients(t *testing.T) {
	t.Parallel()
	for status, kind := range map[int]string{400: "invalid_request_error", 409: "conflict_error", 418: "invalid_request_error", 503: "api_error", 529: "overloaded_error", 429: "rate_limit_error"} {
		said := anthropic.Codec{}.DecodeError(anthropic.Codec{}.AppendError(nil, dialect.Failure{Status: status, Message: "m"}))
		assert.Equal(t, kind, said.Type, status)
	}
	assert.JSONEq(t, `{"type":"error","error":{"type":"invalid_request_error","message":"m","details":{"error_code":"thread_unsupported_request"}},"request_id":"req_1"}`,
		string(anthropic.Codec{}.AppendError(nil, dialect.Failure{Status: 400, Cause: dialect.NoThreads, Message: "m", RequestID: "req_1"})))
	assert.JSONEq(t, `{"type":"error","error":{"type":"not_found_error","message":"no \"x\""}}`, string(anthropic.Codec{}.AppendError(nil, dialect.Failure{Status: 404, Cause: dialect.UnknownModel, Message: `no "x"`})))
}

func TestAnAnswerWithAnotherModelInItsPlaceSaysSo(t *testing.T) {
	t.Parallel()
	output := decode(t, `{"model":"a","content":[{"type":"fallback","from":{"model":"a"},"to":{"model":"b"}},{"type":"text","text":"x"}],
		"usage":{"input_tokens":1,"output_tokens":2,"iterations":[{"model":"a"}]}}`)
	assert.Equal(t, "b", output.GetModel())
	assert.Equal(t, "a", output.GetFallback().GetModel())
	assert.Equal(t, "b", output.GetFallback().GetFallbackModel())
	assert.JSONEq(t, `{"handoffs":[{"from":"a","to":"b"}],"iterations":[{"model":"a"}]}`, output.GetFallback().GetMetadataJson())
}

func context400KB() *anthropic.Request {
	messages := []*modelv1.ChatMessage{chat.System(strings.Repeat("Follow the rules of the house. ", 100)), chat.User("Fix the build.")}
	for i := range 50 {
		id := "toolu_" + strings.Repeat("x", i%3+1)
		messages = append(messages,
			chat.Assistant("Let me look at the next file.", chat.Call(id, "bash", `{"cmd": "sed -n 1,200p internal/server/server.go"}`)),
			chat.ToolMessage(&toolv1.ToolResult{CallId: id, Function: "bash", Content: chat.TextContent(strings.Repeat("\tif err != nil {\n\t\treturn err\n\t}\n", 240))}))
	}
	return &anthropic.Request{Request: dialect.Request{Model: "claude", Messages: messages, Config: &modelv1.GenerateConfig{}}}
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

func TestThinkingOfAServerThatSealsNothingGoesBackAsItCame(t *testing.T) {
	t.Parallel()
	output := decode(t, `{"type":"message","role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"x"}]}`)
	body, err := (&anthropic.Request{Request: dialect.Request{Messages: []*modelv1.ChatMessage{chat.FirstMessage(output)}}}).Append(nil)
	require.NoError(t, err)
	assert.Contains(t, string(body), `{"type":"thinking","thinking":"hm","signature":""}`)
}

func TestWhichErrorsGoBy(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		"Overloaded":            true,
		"Internal server error": true,
		"request is not valid JSON: unexpected end of data": true,
		"tool input: Unexpected end of JSON":                false,
		"prompt is too long":                                false,
	} {
		body := anthropic.Codec{}.AppendError(nil, dialect.Failure{Status: 400, Message: message})
		assert.Equal(t, want, anthropic.Codec{}.DecodeError(body).Transient, message)
	}
}

func TestManyTurnsOfTheUserAreOne(t *testing.T) {
	t.Parallel()
	messages := make([]*modelv1.ChatMessage, 150_000)
	for i := range messages {
		messages[i] = chat.User("0123456789")
	}
	begun := time.Now()
	body, err := (&anthropic.Request{Request: dialect.Request{Model: "m", Messages: messages, Config: &modelv1.GenerateConfig{}}}).Append(nil)
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(body), `"role"`))
	messages = append(messages, assistantSays(chat.TextPart("b")))
	messages[1].Content = chat.ListContent(chat.TextPart("a"))
	body, err = (&anthropic.Request{Request: dialect.Request{Model: "m", Messages: messages, Config: &modelv1.GenerateConfig{}}}).Append(nil)
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(body), `"role"`))
	assert.Equal(t, len(messages), strings.Count(string(body), `"text":`))
	assert.Less(t, time.Since(begun), waittest.Bound)
}
