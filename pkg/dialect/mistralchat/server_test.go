package mistralchat_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralchat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

func TestTheOptionsOfAClientsRequest(t *testing.T) {
	t.Parallel()
	r, err := mistralchat.Codec{}.ParseRequest([]byte(`{"model":"m","messages":[{"role":"user","content":"q"},{"role":"tool","tool_call_id":"c","name":"f","content":"1"}],"stream":true,
		"random_seed":4,"top_k":3,"n":2,"presence_penalty":0.5,"frequency_penalty":0.25,"stop":"x","reasoning_effort":"high","parallel_tool_calls":false,
		"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"x": 1.0}}},"logprobs":false,"safe_prompt":false,"guardrails":null}`))
	require.NoError(t, err)
	assert.True(t, r.Stream)
	c := r.Config
	assert.Equal(t, []any{int64(4), int32(3), int32(2), 0.5, 0.25, "high", false},
		[]any{c.GetSeed(), c.GetTopK(), c.GetNumChoices(), c.GetPresencePenalty(), c.GetFrequencyPenalty(), c.GetReasoningEffort(), c.GetParallelToolCalls()})
	assert.Equal(t, []string{"x"}, c.GetStopSeqs().GetValues())
	assert.Equal(t, `{"x": 1.0}`, c.GetResponseSchema().GetJsonSchema())
	assert.Equal(t, "f", r.Messages[1].GetFunction())
}

func TestWhatAClientMustNotAskFor(t *testing.T) {
	t.Parallel()
	const messages = `"model":"m","messages":[{"role":"user","content":"q"}]`
	for body, param := range map[string]string{
		`{"messages":[]}`: "model", `{"model":"m"}`: "messages", `{"model":"m","messages":[]}`: "messages",
		`{"model":"m","messages":[{"role":"user"}]}`:                                                                                                   "messages[0].content",
		`{"model":"m","messages":[{"role":"critic","content":"q"}]}`:                                                                                   "messages[0].role",
		`{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":"aGk="}]}]}`:                                           "messages[0].content[0].type",
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":"https://x"}]}]}`:                                          "messages[0].content[0].image_url",
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`:                                                                  "messages[0].content[0].image_url",
		`{"model":"m","messages":[{"role":"user","content":[{"type":"document_url","document_url":"https://x"}]}]}`:                                    "messages[0].content[0].document_url",
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk=","detail":"huge"}}]}]}`: "messages[0].content[0].image_url.detail",
		`{` + messages + `,"max_tokens":0}`:                                                                                                            "max_tokens", `{` + messages + `,"n":0}`: "n", `{` + messages + `,"logprobs":true}`: "logprobs",
		`{` + messages + `,"safe_prompt":true}`: "safe_prompt", `{` + messages + `,"guardrails":[]}`: "guardrails", `{` + messages + `,"stop":7}`: "stop",
		`{` + messages + `,"tool_choice":"some"}`: "tool_choice", `{` + messages + `,"tools":[{"type":"web_search"}]}`: "tools[0].type",
		`{` + messages + `,"response_format":{"type":"json"}}`: "response_format.type",
	} {
		_, err := mistralchat.Codec{}.ParseRequest([]byte(body))
		failure, ok := errors.AsType[*dialect.RequestError](err)
		require.True(t, ok, "%s: %v", body, err)
		assert.Equal(t, param, failure.Param, body)
	}
}

// What has no place in the format is left out of an answer; of sealed reasoning the summary is shown.
func TestAnAnswerHasNoMoreThanTheFormat(t *testing.T) {
	t.Parallel()
	m := chat.Assistant("")
	sealed := &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "c2Vs", Redacted: true, Summary: new("Adds.")}}}
	cited := chat.TextPart("Two.")
	cited.GetText().Citations = []*contentv1.Citation{{Source: &contentv1.Citation_Url{Url: "https://x"}}}
	m.Content = chat.ListContent(sealed, &contentv1.Content{Part: &contentv1.Content_ToolUse{ToolUse: &contentv1.ToolUse{Id: "t"}}}, cited)
	output := chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_STOP)
	body, err := mistralchat.Codec{}.AppendResponse(nil, output, dialect.ResponseMeta{ID: "x"})
	require.NoError(t, err)
	assert.Equal(t, `{"id":"x","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":[`+
		`{"type":"thinking","thinking":[{"type":"text","text":"Adds."}]},{"type":"text","text":"Two."}]},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`, string(body))
	var wire bytes.Buffer
	w := mistralchat.Codec{}.NewStreamWriter(&wire, dialect.ResponseMeta{ID: "x", Model: "m"})
	require.NoError(t, w.Close(output))
	assert.NotContains(t, wire.String(), "https://x")
	assert.Equal(t, 5, strings.Count(wire.String(), "data: "), "the beginning, the summary, the text, the end, and the mark of the end: %s", wire.String())
}
