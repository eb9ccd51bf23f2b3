package dialecttest

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
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

const schema = `{"type": "object", "properties": {"z": {"type": "number", "maximum": 1e400}, "a": {}}, "x-own": 1.0}`

// conversation is a request with a turn of every kind that each format knows.
func conversation() *dialect.Request {
	look := chat.User("")
	look.Content = chat.ListContent(chat.TextPart("And "+hard), picture)
	return &dialect.Request{
		Model: "m/1", Stream: true,
		Messages: []*modelv1.ChatMessage{
			chat.System("Be brief."), chat.User("Add them."),
			chat.Assistant("Let me see.", chat.Call("c1", "add", `{"z": 1.0, "a": 123456789012345678901234567890}`), chat.Call("c2", "add", "{}")),
			chat.ToolMessage(&toolv1.ToolResult{CallId: "c1", Function: "add", Content: chat.TextContent("2")}),
			chat.ToolMessage(&toolv1.ToolResult{CallId: "c2", Function: "add", Content: chat.TextContent("3")}),
			chat.Assistant("Two, and three."), look,
		},
		Tools:  []*toolv1.ToolInfo{{Name: "add", Description: "Adds " + hard, ParametersJson: schema}, {Name: "bare", ParametersJson: `{"type": "object"}`}},
		Choice: chat.FunctionChoice("add"),
		Config: &modelv1.GenerateConfig{
			MaxTokens: new(int64(9)), Temperature: new(0.5), TopP: new(0.25), StopSeqs: &modelv1.StringList{Values: []string{"END", "\n"}},
		},
	}
}

// appendRequest returns the body of a request.
func appendRequest(t testing.TB, h Harness, r *dialect.Request) []byte {
	t.Helper()
	body, err := h.Codec.AppendRequest([]byte("kept"), r)
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(body, []byte("kept")), "what is in dst stays")
	require.True(t, json.Valid(body[4:]), "%s", body)
	return body[4:]
}

// turn is a message reduced to what every format can express.
type turn struct {
	role      modelv1.Role
	text      string
	calls     [][3]string
	of, image string
}

func turns(messages []*modelv1.ChatMessage) []turn {
	var all []turn
	for _, m := range messages {
		next := turn{role: m.GetRole(), text: chat.Text(m), of: m.GetFunction() + strings.Join(m.GetToolCallIds(), ",")}
		for _, call := range m.GetToolCalls() {
			next.calls = append(next.calls, [3]string{call.GetId(), call.GetFunction(), call.GetArgumentsJson()})
		}
		for _, part := range chat.Parts(m.GetContent()) {
			next.image += part.GetImage().GetMedia().GetUri()
		}
		all = append(all, next)
	}
	return all
}

func requests(t *testing.T, h Harness) {
	const auto, none = toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO, toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE
	for name, choice := range map[string]*toolv1.ToolChoice{
		"a function": chat.FunctionChoice("add"), "any": chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY),
		"auto": chat.ModeChoice(auto), "none": chat.ModeChoice(none),
	} {
		want := conversation()
		want.Choice = choice
		got, err := h.Codec.ParseRequest(appendRequest(t, h, want))
		require.NoError(t, err, name)
		if h.NoNamedChoice && choice.GetFunction() != "" {
			want.Tools = want.Tools[:1]
			choice = chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY)
		}
		assert.Equal(t, turns(want.Messages), turns(got.Messages))
		if h.NoneLeavesToolsOut && choice.GetMode() == none {
			assert.Empty(t, got.Tools, "no tool may be called")
			continue
		}
		assert.Equal(t, choice.GetFunction(), got.Choice.GetFunction(), name)
		assert.Equal(t, choice.GetMode(), got.Choice.GetMode(), name)
		require.Len(t, got.Tools, len(want.Tools))
		for i, tool := range want.Tools {
			assert.Equal(t, tool.GetName(), got.Tools[i].GetName())
			assert.Equal(t, tool.GetDescription(), got.Tools[i].GetDescription())
			assert.Equal(t, tool.GetParametersJson(), got.Tools[i].GetParametersJson(), "schemas stay byte for byte")
		}
		c := got.Config
		assert.Equal(t, []any{int64(9), 0.5, 0.25}, []any{c.GetMaxTokens(), c.GetTemperature(), c.GetTopP()})
		if !h.NoStopSequences {
			assert.Equal(t, []string{"END", "\n"}, c.GetStopSeqs().GetValues())
		}
		for _, m := range got.Messages {
			assert.NotEmpty(t, m.GetId())
		}
	}
}

// Vendors' caches find an earlier prefix by its bytes.
func stable(t *testing.T, h Harness) {
	shorter := conversation()
	body := appendRequest(t, h, shorter)
	for range 3 {
		require.Equal(t, string(body), string(appendRequest(t, h, conversation())))
	}
	longer := conversation()
	longer.Messages = append(longer.Messages, chat.Assistant("I see."), chat.User("Good."))
	longerBody := appendRequest(t, h, longer)
	same := 0
	for same < min(len(body), len(longerBody)) && body[same] == longerBody[same] {
		same++
	}
	assert.Greater(t, same, bytes.Index(body, []byte("Two, and three.")), "all of the shorter conversation, but for its last turn, stands first: %s", body[:same])
}

func members(t *testing.T, h Harness) {
	r := conversation()
	r.Members = []dialect.Member{{Name: "temperature", JSON: "0.125"}, {Name: "member_of_tomorrow", JSON: `{"z": 1.0, "a": [2]}`}}
	body := string(appendRequest(t, h, r))
	assert.Contains(t, body, `"member_of_tomorrow":{"z": 1.0, "a": [2]}`, "they go through as they are")
	assert.LessOrEqual(t, strings.Count(body, `"temperature"`), 1)
	assert.Contains(t, body, "0.125")
}

func unconfigured(t *testing.T, h Harness) {
	r := &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: []*toolv1.ToolInfo{{Name: "f"}}}
	assert.NotEmpty(t, appendRequest(t, h, r))
}

func unsupported(t *testing.T, h Harness) {
	refused := func(r *dialect.Request, field, why string) {
		r.Model = "m"
		_, err := h.Codec.AppendRequest(nil, r)
		failure, ok := errors.AsType[*dialect.UnsupportedError](err)
		require.True(t, ok, "%s: %v", why, err)
		assert.NotEmpty(t, failure.API)
		assert.NotEmpty(t, failure.What)
		assert.Equal(t, field, failure.Field)
	}
	m := chat.User("")
	m.Content = chat.ListContent(chat.TextPart("x"), &contentv1.Content{})
	refused(&dialect.Request{Messages: []*modelv1.ChatMessage{m}}, "messages", "content of an unknown kind")
	asked := []*modelv1.ChatMessage{chat.User("q")}
	for _, schema := range []string{"true", "[]", `{"type":`, "schema", `{}},"model":"another","more":{"a":{}`} {
		refused(&dialect.Request{Messages: asked, Tools: []*toolv1.ToolInfo{{Name: "f", ParametersJson: schema}}}, "tools", schema)
		body := &dialect.Request{Messages: asked, Config: &modelv1.GenerateConfig{ResponseSchema: &modelv1.ResponseSchema{Name: "s", JsonSchema: schema}}}
		refused(body, "config.response_schema.json_schema", schema)
	}
}

// anyJSON asks for an answer that is JSON without a schema, which a format has, or refuses by name.
func anyJSON(t *testing.T, h Harness) {
	r := &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{ResponseSchema: dialect.AnyJSON()}}
	body, err := h.Codec.AppendRequest(nil, r)
	if failure, ok := errors.AsType[*dialect.UnsupportedError](err); ok {
		assert.Equal(t, "config.response_schema.json_schema", failure.Field)
		assert.Contains(t, failure.What, "without a schema")
		return
	}
	require.NoError(t, err)
	got, err := h.Codec.ParseRequest(body)
	require.NoError(t, err)
	assert.True(t, dialect.IsAnyJSON(got.Config.GetResponseSchema()), "%s", body)
}

// extended adds a member that no version knows to a JSON object.
func extended(t testing.TB, object string) string {
	t.Helper()
	rest, ok := strings.CutPrefix(strings.TrimSpace(object), "{")
	require.True(t, ok, "%s", object)
	separator := ","
	if strings.TrimSpace(rest) == "}" {
		separator = ""
	}
	return `{"member_of_tomorrow":{"x":[1,{"choices":null,"content":null}]}` + separator + rest
}

func unknownMembers(t *testing.T, h Harness) {
	for _, body := range append(h.Requests, string(appendRequest(t, h, conversation()))) {
		want, err := h.Codec.ParseRequest([]byte(body))
		require.NoError(t, err, body)
		got, err := h.Codec.ParseRequest([]byte(extended(t, body)))
		require.NoError(t, err, body)
		assert.Equal(t, turns(want.Messages), turns(got.Messages))
	}
	for _, body := range h.Responses {
		assert.Equal(t, saidBy(decode(t, h, []byte(body))), saidBy(decode(t, h, []byte(extended(t, body)))))
	}
	extend := h.Extend
	if extend == nil {
		extend = extendLines
	}
	for name, s := range h.Streams {
		want, _ := whole(t, h, strings.NewReader(s.Events))
		got, _ := whole(t, h, strings.NewReader(extend(s.Events, func(object string) string { return extended(t, object) })))
		assert.Equal(t, saidBy(want), saidBy(got), name)
	}
}

// extendLines extends server-sent events.
func extendLines(events string, extended func(object string) string) string {
	var all strings.Builder
	for line := range strings.Lines(events) {
		if data, ok := strings.CutPrefix(line, "data: {"); ok {
			line = "data: " + extended("{"+data) + "\n"
		}
		all.WriteString(line)
	}
	return all.String()
}

func badRequests(t *testing.T, h Harness) {
	for _, body := range []string{``, ` `, `null`, `7`, `"x"`, `[]`, `{}`, `{`, `{"messages":{}}`, `<html>`, "\xff", string(appendRequest(t, h, conversation())[1:])} {
		_, err := h.Codec.ParseRequest([]byte(body))
		failure, ok := errors.AsType[*dialect.RequestError](err)
		require.True(t, ok, "%q: %v", body, err)
		assert.NotEmpty(t, failure.Message)
		assert.Equal(t, dialect.BadRequest, failure.Failure().Status)
	}
	for _, body := range h.Requests {
		_, err := h.Codec.ParseRequest([]byte(body))
		require.NoError(t, err, body)
	}
}

func counted(t *testing.T, h Harness, counter dialect.TokenCounter) {
	body, err := counter.AppendCountRequest(nil, conversation())
	require.NoError(t, err)
	got, err := counter.ParseCountRequest(body)
	require.NoError(t, err)
	assert.Equal(t, turns(conversation().Messages), turns(got.Messages))
	for _, tokens := range []int64{0, 12, 1 << 52} {
		read, err := counter.DecodeCountResponse(counter.AppendCountResponse(nil, tokens))
		require.NoError(t, err)
		assert.Equal(t, tokens, read)
	}
	for _, body := range []string{``, `{}`, `[]`, `{"input_tokens":"x"}`, `<html>`} {
		_, err := counter.DecodeCountResponse([]byte(body))
		requireMalformed(t, err, body)
	}
	_, err = counter.DecodeCountResponse(h.Codec.AppendError(nil, dialect.Failure{Status: 500, Message: "m"}))
	said, ok := errors.AsType[*dialect.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "m", said.Message)
}
