package emulate_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/emulate"
)

var weather = []*toolv1.ToolInfo{{Name: "weather", Description: "Tells the weather.", ParametersJson: `{"type":"object","properties":{"city":{"type":"string"}}}`}}

// A request keeps its meaning without tools, and the given one is not changed.
func TestRequest(t *testing.T) {
	t.Parallel()
	failed := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_TOOL, Function: "weather", Error: &toolv1.ToolCallError{Message: "no answer"}}
	given := &provider.Request{
		Messages: []*modelv1.ChatMessage{
			chat.User("q"), chat.Assistant("Let me look.", chat.Call("c1", "weather", `{"city":"a\",b","n":[1,2]}`), chat.Call("c2", "weather", "")),
			{Role: modelv1.Role_ROLE_TOOL, Function: "weather", Content: chat.TextContent("rain")},
			failed,
		},
		Tools: weather, ToolChoice: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY), Stream: func(*modelv1.GenerateDelta) {},
	}
	before := proto.CloneOf(given.Messages[1])
	sent := emulate.Request(given)
	assert.Empty(t, sent.Tools)
	assert.Nil(t, sent.ToolChoice)
	assert.Nil(t, sent.Stream, "a call in pieces is not recognised")
	require.Len(t, sent.Messages, 5)
	schema := regexp.MustCompile(`(?s)<tools>(.*)</tools>`).FindStringSubmatch(chat.Text(sent.Messages[0]))
	require.Len(t, schema, 2)
	assert.JSONEq(t, `{"name":"weather","description":"Tells the weather.","parameters":`+weather[0].GetParametersJson()+`}`, schema[1])
	assert.Equal(t, "Let me look.\n\n<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"a\\\",b\", \"n\": [1, 2]} }</tool_call>\n\n"+
		`<tool_call>{"name": "weather", "arguments": {} }</tool_call>`, chat.Text(sent.Messages[2]))
	assert.Empty(t, sent.Messages[2].GetToolCalls())
	assert.Equal(t, modelv1.Role_ROLE_USER, sent.Messages[3].GetRole())
	assert.Contains(t, chat.Text(sent.Messages[3]), "\n\nrain")
	assert.Contains(t, chat.Text(sent.Messages[4]), "\n\nError: no answer")
	assert.Empty(t, cmp.Diff(before, given.Messages[1], protocmp.Transform()))
	assert.Len(t, emulate.Request(&provider.Request{Messages: given.Messages[:1]}).Messages, 1, "without tools there is no prompt")
}

func TestCallsAreRead(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]struct {
		text  string
		calls []*toolv1.ToolCall
	}{
		"plain": {text: "plain"},
		"Look:\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call> now <tool_calls>{\"name\":\"weather\",\"arguments\":{}}</tool_calls>": {
			text: "Look:\n\nnow", calls: []*toolv1.ToolCall{{Function: "weather", ArgumentsJson: `{"city": "Oslo"}`}, {Function: "weather", ArgumentsJson: `{}`}},
		},
		`<tool_call>{"name": "weather", "arguments": "Oslo"}</tool_call>`: {calls: []*toolv1.ToolCall{{Function: "weather", ArgumentsJson: `{"city":"Oslo"}`}}},
		`<tool_call>{"name": "weather", "arg</tool_call>`:                 {calls: []*toolv1.ToolCall{{Function: "unknown", ArgumentsJson: `{}`, ParseError: new("")}}},
		`<tool_call>{"name": "weather"}</tool_call>`:                      {calls: []*toolv1.ToolCall{{Function: "unknown", ArgumentsJson: `{}`, ParseError: new("")}}},
		`<tool_call>[1]</tool_call>`:                                      {calls: []*toolv1.ToolCall{{Function: "unknown", ArgumentsJson: `{}`, ParseError: new("")}}},
		`<tool_call>{"name": "weather", "arguments": {}}`:                 {text: `<tool_call>{"name": "weather", "arguments": {}}`},
	} {
		output := chat.MessageOutput("m", chat.Assistant(said), modelv1.StopReason_STOP_REASON_STOP)
		emulate.Read(output, weather, "m")
		m := chat.FirstMessage(output)
		assert.Equal(t, want.text, chat.Text(m), said)
		require.Len(t, m.GetToolCalls(), len(want.calls), said)
		assert.Equal(t, len(want.calls) > 0, chat.StopReason(output) == modelv1.StopReason_STOP_REASON_TOOL_CALLS, said)
		for i, call := range m.GetToolCalls() {
			assert.Equal(t, want.calls[i].GetFunction(), call.GetFunction(), said)
			assert.JSONEq(t, want.calls[i].GetArgumentsJson(), call.GetArgumentsJson(), said)
			assert.Equal(t, want.calls[i].ParseError == nil, call.ParseError == nil, said)
			assert.NotEmpty(t, call.GetId())
		}
	}
}

// Tags within a text of the arguments are no tags, in answers and in what goes back; garbage still ends at the first
// one.
func TestTagsWithinArguments(t *testing.T) {
	t.Parallel()
	const arguments = `{"city":"a</tool_call><tool_call>{\"name\":1}</tool_calls>"}`
	read := func(said string) *modelv1.ChatMessage {
		output := chat.MessageOutput("m", chat.Assistant(said), modelv1.StopReason_STOP_REASON_STOP)
		emulate.Read(output, weather, "m")
		return chat.FirstMessage(output)
	}
	m := read(`Look. <tool_call>{"name": "weather", "arguments": ` + arguments + `}</tool_call> <tool_call>{"name": "weather", "arguments": {}}</tool_call> Done.`)
	assert.Equal(t, "Look.\n\nDone.", chat.Text(m))
	require.Len(t, m.GetToolCalls(), 2)
	assert.JSONEq(t, arguments, m.GetToolCalls()[0].GetArgumentsJson())
	sent := chat.Text(emulate.Request(&provider.Request{Messages: []*modelv1.ChatMessage{m}}).Messages[0])
	assert.Equal(t, 2, strings.Count(sent, "</tool_call"), sent)
	assert.JSONEq(t, arguments, read(sent).GetToolCalls()[0].GetArgumentsJson())
	m = read(`<tool_call>{"name": "weather", "arguments": {"city": "</tool_call> <tool_call>{"name": "weather", "arguments": {}}</tool_call>`)
	require.Len(t, m.GetToolCalls(), 2)
	assert.NotNil(t, m.GetToolCalls()[0].ParseError)
	assert.Equal(t, "weather", m.GetToolCalls()[1].GetFunction())
}

// The time to read an answer grows with its length alone, however many tags it has and whatever is between them.
func TestManyTags(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{`<tool_call>`, `<tool_call>["`, `<tool_call>[",",","</tool_call>`, `<tool_call>{"a":"</tool_call>`, `</tool_call>`, `<tool_call>{"name":"weather","arguments":{}}`} {
		output := chat.MessageOutput("m", chat.Assistant(strings.Repeat(piece, 500_000)), modelv1.StopReason_STOP_REASON_STOP)
		waittest.Return(t, func() { emulate.Read(output, weather, "m") }, "the end of the reading of "+piece)
	}
}

// Reasoning stays beside a call in an answer.
func TestReasoningStays(t *testing.T) {
	t.Parallel()
	m := chat.Assistant("")
	m.Content = chat.ListContent(chat.ReasoningPart("hm"), chat.TextPart("Look.\n\n<tool_call>{\"name\": \"weather\", \"arguments\": {} }</tool_call>"))
	output := chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_STOP)
	emulate.Read(output, weather, "m")
	assert.Equal(t, "hm", chat.Parts(chat.FirstMessage(output).GetContent())[0].GetReasoning().GetReasoning())
	assert.Equal(t, "Look.", chat.Completion(output))
	assert.Len(t, chat.FirstMessage(output).GetToolCalls(), 1)
}

// An earlier answer is sent as its texts alone, with its calls between tags.
func TestAnswersAreTexts(t *testing.T) {
	t.Parallel()
	const call = `<tool_call>{"name": "weather", "arguments": {} }</tool_call>`
	for _, c := range []struct {
		name  string
		parts []*contentv1.Content
		calls bool
		want  string
	}{
		{"a text", []*contentv1.Content{chat.TextPart("A")}, false, "A"},
		{"two texts", []*contentv1.Content{chat.TextPart("A"), chat.TextPart("B")}, false, "A\nB"},
		{"reasoning", []*contentv1.Content{chat.ReasoningPart("hm"), chat.TextPart("A")}, false, "A"},
		{"reasoning and a call", []*contentv1.Content{chat.ReasoningPart("hm"), chat.TextPart("A")}, true, "A\n\n" + call},
		{"a blank text and a call", []*contentv1.Content{chat.TextPart("  ")}, true, call},
	} {
		m := chat.Assistant("")
		m.Content = chat.ListContent(c.parts...)
		if c.calls {
			m.ToolCalls = []*toolv1.ToolCall{chat.Call("c1", "weather", "")}
		}
		sent := emulate.Request(&provider.Request{Messages: []*modelv1.ChatMessage{m}}).Messages[0]
		assert.Equal(t, c.want, sent.GetContent().GetText(), c.name)
	}
}

// An answer with calls of its own stays as it is.
func TestOwnCallsStay(t *testing.T) {
	t.Parallel()
	output := chat.MessageOutput("m", chat.Assistant("<tool_call>{}</tool_call>", chat.Call("c", "weather", "{}")), modelv1.StopReason_STOP_REASON_TOOL_CALLS)
	before := proto.CloneOf(output)
	emulate.Read(output, weather, "m")
	assert.Empty(t, cmp.Diff(before, output, protocmp.Transform()))
}

// Nothing that a model writes makes a call that cannot be carried on.
func FuzzRead(f *testing.F) {
	f.Add(`a <tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>`)
	f.Add(`<tool_call><tool_call>"x"</tool_call></tool_calls>`)
	f.Fuzz(func(t *testing.T, said string) {
		output := chat.MessageOutput("m", chat.Assistant(said), modelv1.StopReason_STOP_REASON_STOP)
		emulate.Read(output, weather, "m")
		for _, call := range chat.FirstMessage(output).GetToolCalls() {
			if !json.Valid([]byte(call.GetArgumentsJson())) || call.GetId() == "" || call.GetFunction() == "" {
				t.Errorf("%q: %v", said, call)
			}
		}
	})
}
