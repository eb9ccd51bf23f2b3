package openaichat_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// olderConversation calls one function twice and another once, in the older form.
var olderConversation = []string{
	`{"role":"user","content":"q"}`,
	`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"x\": 1.0}"},"tool_calls":null}`,
	`{"role":"function","name":"f","content":"one"}`,
	`{"role":"assistant","content":"Again.","function_call":{"name":"f","arguments":"{\"x\": 1.0}"}}`,
	`{"role":"function","name":"f","content":[{"type":"text","text":"two"}]}`,
	`{"role":"assistant","content":null,"function_call":{"name":"g","arguments":""}}`,
	`{"role":"function","name":"g","content":null}`,
}

// olderRequest is a request with some of these messages, and more members.
func olderRequest(messages []string, more string) []byte {
	return fmt.Appendf(nil, `{"model":"m","messages":[%s]%s}`, strings.Join(messages, ","), more)
}

func TestFunctionsAreTools(t *testing.T) {
	t.Parallel()
	r, err := openaichat.Codec{}.ParseRequest(olderRequest(olderConversation, `,"functions":[{"name":"f","description":"d","parameters":{"b": 1.50}},{"name":"g"}]`))
	require.NoError(t, err)
	assert.True(t, r.OneCall)
	assert.Nil(t, r.Choice, "without a choice it is the model's")
	require.Len(t, r.Tools, 2)
	assert.Equal(t, "d", r.Tools[0].GetDescription())
	assert.Equal(t, `{"b": 1.50}`, r.Tools[0].GetParametersJson(), "schemas stay as they are written")
	assert.JSONEq(t, `{"type": "object", "properties": {}}`, r.Tools[1].GetParametersJson())
	for _, m := range r.Messages {
		m.Id = ""
	}
	assert.JSONEq(t, `[{"role":"user","content":"q"},
		{"role":"assistant","source":"generate","content":"","tool_calls":[{"id":"function_call_1","function":"f","arguments":{"x":1.0},"type":"function"}]},
		{"role":"tool","content":"one","tool_call_id":"function_call_1","function":"f"},
		{"role":"assistant","source":"generate","content":"Again.","tool_calls":[{"id":"function_call_2","function":"f","arguments":{"x":1.0},"type":"function"}]},
		{"role":"tool","content":[{"type":"text","text":"two"}],"tool_call_id":"function_call_2","function":"f"},
		{"role":"assistant","source":"generate","content":"","tool_calls":[{"id":"function_call_3","function":"g","arguments":{},"type":"function"}]},
		{"role":"tool","content":"","tool_call_id":"function_call_3","function":"g"}]`, string(chat.MessagesJSON(r.Messages)))
}

// The prompt caches of vendors need that a conversation begins with the bytes of what it was before.
func TestCallsOfALongerConversationKeepTheirIDs(t *testing.T) {
	t.Parallel()
	var before []byte
	for n := 1; n <= len(olderConversation); n++ {
		r, err := openaichat.Codec{}.ParseRequest(olderRequest(olderConversation[:n], ""))
		require.NoError(t, err)
		body, err := openaichat.Codec{}.AppendRequest(nil, &dialect.Request{Model: "m", Messages: r.Messages})
		require.NoError(t, err)
		assert.True(t, bytes.HasPrefix(body, before), "%s does not begin with %s", body, before)
		before = bytes.TrimSuffix(body, []byte("]}"))
	}
}

func TestTheChoiceOfAFunction(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]*toolv1.ToolChoice{
		`null`: nil, `{"name":"f"}`: chat.FunctionChoice("f"),
		`"auto"`: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO), `"none"`: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE),
	} {
		r, err := openaichat.Codec{}.ParseRequest(olderRequest(olderConversation[:1], `,"functions":[{"name":"f"}],"function_call":`+said))
		require.NoError(t, err, said)
		assert.Equal(t, want.String(), r.Choice.String(), said)
	}
}

func TestWhatFunctionsMustNotBeIsNamed(t *testing.T) {
	t.Parallel()
	for members, want := range map[string]string{
		`"functions":[{"name":"f"}],"tools":[]`:                                        "functions: must not be beside `tools`",
		`"functions":[],"tool_choice":"auto"`:                                          "functions: must not be beside `tools`",
		`"function_call":"auto","tool_choice":"auto"`:                                  "function_call: must not be beside `tools`",
		`"function_call":"auto","tools":[{"type":"function","function":{"name":"f"}}]`: "function_call: must not be beside `tools`",
		`"functions":{}`:                                                                                                      "functions: must not be an object",
		`"functions":[{"description":"d"}]`:                                                                                   "functions[0].name: is required",
		`"functions":[{"name":"f"}],"function_call":"required"`:                                                               `function_call: "required" is none of auto, none`,
		`"functions":[{"name":"f"}],"function_call":{"type":"function"}`:                                                      "function_call: is neither",
		`"functions":[{"name":"f"}],"function_call":7`:                                                                        "function_call: is neither",
		`"functions":[{"name":"f"}],"function_call":{"name":"g"}`:                                                             `function_call.name: "g" is none of`,
		`"functions":[{"name":"web_search"}],"web_search_options":{}`:                                                         "functions: has a function web_search",
		`"messages":[{"role":"assistant","content":"","function_call":{"arguments":""}}]`:                                     "messages[0].function_call.name: is required",
		`"messages":[{"role":"function","content":"x"}]`:                                                                      "messages[0].name: is required",
		`"messages":[{"role":"function","name":"f","content":"x"}]`:                                                           `messages[0]: is a result of "f"`,
		`"messages":[` + olderConversation[1] + `,{"role":"function","name":"g"}]`:                                            `messages[1].name: is "g"`,
		`"messages":[` + olderConversation[1] + `,` + olderConversation[2] + `,{"role":"function","name":"f","content":"x"}]`: `messages[2]: is a result of "f"`,
	} {
		if !strings.Contains(members, `"messages"`) {
			members += `,"messages":[{"role":"user","content":"q"}]`
		}
		_, err := openaichat.Codec{}.ParseRequest([]byte(`{"model":"m",` + members + `}`))
		var said *dialect.RequestError
		require.ErrorAs(t, err, &said, members)
		assert.ErrorContains(t, err, want, members)
	}
}

// twoChoices is an answer with two choices, each with two calls.
func twoChoices() *modelv1.ModelOutput {
	const stop = modelv1.StopReason_STOP_REASON_TOOL_CALLS
	output := chat.MessageOutput("m", chat.Assistant("So.", chat.Call("c1", "f", `{"x": 1.0}`), chat.Call("c2", "g", "{}")), stop)
	second := chat.MessageOutput("m", chat.Assistant("", chat.Call("c3", "g", "{}"), chat.Call("c4", "f", "{}")), stop)
	output.Choices = append(output.Choices, second.GetChoices()...)
	return output
}

// olderChoice is what a client of the older form reads of a choice.
type olderChoice struct {
	Index   int
	Message olderMessage
	Delta   olderMessage
	Finish  string `json:"finish_reason"`
}

type olderMessage struct {
	Content *string
	Calls   json.RawMessage                  `json:"tool_calls"`
	Call    struct{ Name, Arguments string } `json:"function_call"`
}

func older() dialect.ResponseMeta {
	about := meta
	about.Request = &dialect.Request{OneCall: true}
	return about
}

// A client of the older form takes one call in an answer: of more, it gets the first.
func TestAnAnswerInTheOlderFormHasOneCall(t *testing.T) {
	t.Parallel()
	body, err := openaichat.Codec{}.AppendResponse(nil, twoChoices(), older())
	require.NoError(t, err)
	var answer struct{ Choices []olderChoice }
	require.NoError(t, json.Unmarshal(body, &answer))
	require.Len(t, answer.Choices, 2)
	for i, want := range []olderMessage{{Content: new("So.")}, {}} {
		want.Call.Name, want.Call.Arguments = "f", `{"x": 1.0}`
		if i == 1 {
			want.Call.Name, want.Call.Arguments = "g", "{}"
		}
		assert.Equal(t, want, answer.Choices[i].Message)
		assert.Equal(t, "function_call", answer.Choices[i].Finish)
	}
	body, err = openaichat.Codec{}.AppendResponse(nil, outputs()["text"], older())
	require.NoError(t, err)
	assert.Contains(t, string(body), `"finish_reason":"stop"`)
	assert.NotContains(t, string(body), "function_call")
}

// However much of an answer came in pieces, and in whatever order, a client of the older form has the first call of
// each choice.
func TestAStreamInTheOlderFormHasOneCall(t *testing.T) {
	t.Parallel()
	piece := func(choice int32, call *modelv1.ToolCallDelta) *modelv1.GenerateDelta {
		return &modelv1.GenerateDelta{Choice: choice, Piece: &modelv1.GenerateDelta_ToolCall{ToolCall: call}}
	}
	pieces := []*modelv1.GenerateDelta{
		dialect.TextDelta("So."), piece(0, &modelv1.ToolCallDelta{Id: "c1", Function: "f"}), piece(0, &modelv1.ToolCallDelta{Index: 1, Id: "c2", Function: "g"}),
		piece(1, &modelv1.ToolCallDelta{Index: 1, Id: "c4", Function: "f", Arguments: "{}"}), piece(0, &modelv1.ToolCallDelta{Arguments: `{"x":`}),
		piece(0, &modelv1.ToolCallDelta{Index: 1, Arguments: "{}"}), piece(0, &modelv1.ToolCallDelta{Arguments: ` 1.0}`}),
	}
	for _, written := range [][]*modelv1.GenerateDelta{nil, pieces[:1], pieces[:2], pieces} {
		var wire bytes.Buffer
		w := openaichat.Codec{}.NewStreamWriter(&wire, older())
		for _, piece := range written {
			require.NoError(t, w.Write(piece))
		}
		require.NoError(t, w.Close(twoChoices()))
		assert.NotContains(t, wire.String(), "tool_calls")
		said := map[int]*olderChoice{0: {}, 1: {}}
		for event, err := range dialect.Events(&wire) {
			require.NoError(t, err)
			var chunk struct{ Choices []olderChoice }
			if string(event.Data) == "[DONE]" {
				break
			}
			require.NoError(t, json.Unmarshal(event.Data, &chunk))
			for _, c := range chunk.Choices {
				whole := said[c.Index]
				whole.Delta.Call.Name += c.Delta.Call.Name
				whole.Delta.Call.Arguments += c.Delta.Call.Arguments
				whole.Finish += c.Finish
			}
		}
		assert.Equal(t, [3]string{"f", `{"x": 1.0}`, "function_call"}, [3]string{said[0].Delta.Call.Name, said[0].Delta.Call.Arguments, said[0].Finish})
		assert.Equal(t, [3]string{"g", "{}", "function_call"}, [3]string{said[1].Delta.Call.Name, said[1].Delta.Call.Arguments, said[1].Finish})
	}
}
