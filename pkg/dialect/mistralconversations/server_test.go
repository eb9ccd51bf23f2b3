package mistralconversations_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralconversations"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// A client sends an answer back as the entries that it received.
func TestTheEntriesOfAClientsConversation(t *testing.T) {
	t.Parallel()
	r, err := mistralconversations.Codec{}.ParseRequest([]byte(`{"model":"m","instructions":"Be brief.","inputs":[{"role":"user","content":"q"},` + strings.Join(entries, ",") +
		`,{"type":"function.result","tool_call_id":"c2","result":"2"},{"type":"message.input","role":"assistant","content":"x"}],"completion_args":{"stop":["y"],"random_seed":4,"reasoning_effort":"high",` +
		`"presence_penalty":0.5,"frequency_penalty":0.25,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"x": 1.0}}}}}`))
	require.NoError(t, err)
	require.Len(t, r.Messages, 5)
	said := r.Messages[2]
	parts := chat.Parts(said.GetContent())
	require.Len(t, parts, 3)
	assert.JSONEq(t, `{"pages":2}`, parts[0].GetToolUse().GetResult())
	assert.Equal(t, "Some thought.", parts[1].GetReasoning().GetReasoning())
	assert.Equal(t, "https://x", parts[2].GetText().GetCitations()[0].GetUrl())
	assert.Len(t, said.GetToolCalls(), 2)
	assert.Equal(t, "g", r.Messages[3].GetFunction())
	assert.Equal(t, "x", chat.Text(r.Messages[4]))
	c := r.Config
	assert.Equal(t, []any{int64(4), "high", 0.5, 0.25, "y", `{"x": 1.0}`},
		[]any{c.GetSeed(), c.GetReasoningEffort(), c.GetPresencePenalty(), c.GetFrequencyPenalty(), c.GetStopSeqs().GetValues()[0], c.GetResponseSchema().GetJsonSchema()})
}

func TestWhatAClientMustNotAskFor(t *testing.T) {
	t.Parallel()
	for body, param := range map[string]string{
		`{"inputs":"q"}`: "model", `{"model":"m"}`: "inputs", `{"model":"m","inputs":[]}`: "inputs", `{"model":"m","inputs":[7]}`: "inputs", `{"agent_id":"a","inputs":"q"}`: "agent_id",
		`{"model":"m","inputs":[{"role":"user"}]}`:                                      "inputs[0].content",
		`{"model":"m","inputs":[{"role":"critic","content":"q"}]}`:                      "inputs[0].role",
		`{"model":"m","inputs":[{"role":"user","content":[{"type":"tool_file"}]}]}`:     "inputs[0].content[0].type",
		`{"model":"m","inputs":[{"type":"agent.handoff"}]}`:                             "inputs[0].type",
		`{"model":"m","inputs":[{"type":"function.call","name":"f"}]}`:                  "inputs[0].tool_call_id",
		`{"model":"m","inputs":[{"type":"function.call","tool_call_id":"c"}]}`:          "inputs[0].name",
		`{"model":"m","inputs":"q","tools":[{"type":"web_search"}]}`:                    "tools[0].type",
		`{"model":"m","inputs":"q","guardrails":[{}]}`:                                  "guardrails",
		`{"model":"m","inputs":"q","completion_args":{"max_tokens":0}}`:                 "completion_args.max_tokens",
		`{"model":"m","inputs":"q","completion_args":{"stop":7}}`:                       "completion_args.stop",
		`{"model":"m","inputs":"q","completion_args":{"tool_choice":"f"}}`:              "completion_args.tool_choice",
		`{"model":"m","inputs":"q","completion_args":{"response_format":{"type":"x"}}}`: "completion_args.response_format.type",
	} {
		_, err := mistralconversations.Codec{}.ParseRequest([]byte(body))
		failure, ok := errors.AsType[*dialect.RequestError](err)
		require.True(t, ok, "%s: %v", body, err)
		assert.Equal(t, param, failure.Param, body)
	}
}

// answered has a part of every kind that the format has.
func answered() *modelv1.ModelOutput {
	sealed := &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "c2Vs", Redacted: true, Summary: new("Adds.")}}}
	cited := chat.TextPart("Two.")
	cited.GetText().Citations = []*contentv1.Citation{{Title: new("A"), Source: &contentv1.Citation_Url{Url: "https://a"}}, {Title: new("no address")}}
	m := chat.Assistant("", chat.Call("c1", "add", `{"a":1}`))
	m.Content = chat.ListContent(sealed, use(code, `{"out":1}`), cited, chat.TextPart("More."))
	return chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_TOOL_CALLS)
}

func TestAnAnswerIsAListOfEntries(t *testing.T) {
	t.Parallel()
	body, err := mistralconversations.Codec{}.AppendResponse(nil, answered(), dialect.ResponseMeta{ID: "conv_1", Created: 1_700_000_000})
	require.NoError(t, err)
	for _, part := range []string{
		`{"conversation_id":"conv_1","object":"conversation.response","outputs":[{"object":"entry","type":"message.output",`, `"created_at":"2023-11-14T22:13:20Z"`,
		`"content":[{"type":"thinking","thinking":[{"type":"text","text":"Adds."}]}]}`, `"name":"code_interpreter","arguments":"print(1)","info":{"out":1}}`,
		`"content":[{"type":"text","text":"Two."},{"type":"tool_reference","tool":"web_search","title":"A","url":"https://a"},{"type":"text","text":"More."}]}`,
		`"tool_call_id":"c1","name":"add","arguments":"{\"a\":1}"}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`,
	} {
		assert.Contains(t, string(body), part)
	}
}

// A stream has the entries of the answer in their order, whatever came piece by piece before.
func TestAStreamHasEachEntryOnce(t *testing.T) {
	t.Parallel()
	body, err := mistralconversations.Codec{}.AppendResponse(nil, answered(), dialect.ResponseMeta{})
	require.NoError(t, err)
	want := output(t, string(body))
	for _, pieces := range [][]*modelv1.GenerateDelta{
		nil,
		{dialect.ReasoningDelta("Adds."), dialect.PartDelta(use(code, `{"out":1}`)), dialect.TextDelta("Tw")},
		{dialect.ReasoningDelta("Adds."), dialect.PartDelta(use(code, `{"out":1}`)), dialect.TextDelta("Two."), dialect.CallDelta(&modelv1.ToolCallDelta{Id: "c1", Function: "add", Arguments: `{"a":1}`})},
	} {
		var wire bytes.Buffer
		w := mistralconversations.Codec{}.NewStreamWriter(&wire, dialect.ResponseMeta{ID: "conv_1", Model: "m"})
		for _, piece := range pieces {
			require.NoError(t, w.Write(piece))
		}
		require.NoError(t, w.Close(answered()))
		s := mistralconversations.Codec{}.NewStreamReader()
		for event, err := range dialect.Events(&wire) {
			require.NoError(t, err)
			_, err = s.Add(event)
			require.NoError(t, err)
		}
		got, err := s.Response().Output(nil)
		require.NoError(t, err)
		var uses int
		for _, part := range chat.Parts(chat.FirstMessage(got).GetContent()) {
			if part.GetToolUse() != nil {
				uses++
			}
		}
		assert.Equal(t, 1, uses)
		assert.Equal(t, chat.Completion(want), chat.Completion(got))
		assert.Len(t, chat.FirstMessage(got).GetToolCalls(), 1)
	}
}

// Pieces of calls may alternate, and a message may go on after what a tool of the server did.
func TestAStreamOfAnOddOrder(t *testing.T) {
	t.Parallel()
	s := mistralconversations.Codec{}.NewStreamReader()
	for _, data := range []string{
		`{"type":"message.output.delta","id":"msg_1","content":"a"}`, `{"type":"function.call.delta","id":"fc_1","tool_call_id":"c1","name":"f","arguments":"{\"a\""}`,
		`{"type":"function.call.delta","id":"fc_2","tool_call_id":"c2","name":"g","arguments":"{"}`, `{"type":"tool.execution.done","id":"t1","name":"code_interpreter"}`,
		`{"type":"function.call.delta","id":"fc_1","tool_call_id":"c1","name":"f","arguments":":1}"}`, `{"type":"message.output.delta","id":"msg_1","content":"b"}`,
		`{"type":"function.call.delta","id":"fc_2","tool_call_id":"c2","name":"g","arguments":"}"}`, `{"type":"message.output.delta","id":"msg_2","content":[{"type":"text","text":"c"}]}`,
	} {
		_, err := s.Add(dialect.Event{Data: []byte(data)})
		require.NoError(t, err)
	}
	got, err := s.Response().Output(nil)
	require.NoError(t, err)
	assert.Equal(t, "ab\nc", chat.Completion(got))
	assert.Equal(t, modelv1.StopReason_STOP_REASON_UNKNOWN, chat.StopReason(got), "it was cut off")
	var calls []string
	for _, call := range chat.FirstMessage(got).GetToolCalls() {
		calls = append(calls, call.GetId()+call.GetFunction()+call.GetArgumentsJson())
	}
	assert.Equal(t, []string{`c1f{"a":1}`, `c2g{}`}, calls)
	_, err = s.Add(dialect.Event{Data: []byte(`{"object":"error","message":"m","type":"rate_limited"}`)})
	said, ok := errors.AsType[*dialect.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 429, said.Status)
}
