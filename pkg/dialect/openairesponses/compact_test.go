package openairesponses_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// kept is a message with a part of data.
func kept(role modelv1.Role, document string) *modelv1.ChatMessage {
	return &modelv1.ChatMessage{Role: role, Content: chat.ListContent(&contentv1.Content{Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: document}}})}
}

// A request to compact has the conversation and the instructions: the endpoint takes no tools and no options.
func TestARequestToCompact(t *testing.T) {
	t.Parallel()
	r := &openairesponses.Request{
		Request: dialect.Request{
			Model: "m", Messages: []*modelv1.ChatMessage{chat.System("s"), chat.User("q")}, Tools: []*toolv1.ToolInfo{{Name: "f"}}, Stream: true,
			Config: &modelv1.GenerateConfig{MaxTokens: new(int64(5)), ReasoningEffort: new("low"), ExtraBodyJson: new(`{"store":true}`)}, Members: []dialect.Member{{Name: "store", JSON: "false"}},
		},
		SealReasoning: true,
	}
	const input = `{"model":"m","input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"s"}]},{"type":"message","role":"user","content":[{"type":"input_text","text":"q"}]}]`
	for instructions, more := range map[string]string{"": "}", "Keep \"names\".": `,"instructions":"Keep \"names\"."}`} {
		body, err := r.AppendCompact(nil, instructions)
		require.NoError(t, err)
		assert.JSONEq(t, input+more, string(body))
	}
}

func compacted(t *testing.T, output string) ([]*modelv1.ChatMessage, *modelv1.ModelUsage, error) {
	t.Helper()
	response, err := openairesponses.Codec{}.DecodeResponse([]byte(`{"id":"resp_1","object":"response.compaction","created_at":1,"output":` + output +
		`,"usage":{"input_tokens":9,"output_tokens":3,"total_tokens":12}}`))
	require.NoError(t, err)
	return response.(openairesponses.Compaction).Compacted(nil)
}

// The items of an answer are messages in their order, and go back as the items that they were.
func TestACompactedConversation(t *testing.T) {
	t.Parallel()
	messages, usage, err := compacted(t, `[
		{"type":"message","id":"msg_0","status":"completed","role":"developer","content":[{"type":"input_text","text":"s"}]},
		{"type":"message","id":"msg_1","status":"completed","role":"user","content":[{"type":"input_text","text":"q"},{"type":"input_image","image_url":"data:image/png;base64,aGk="}]},
		{"type":"compaction","id":"cmp_1","encrypted_content":"c2VhbGVk"},
		{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"dGhvdWdodA=="},
		{"type":"message","id":"msg_2","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]}]},
		{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{\"x\":1}"},
		{"type":"function_call_output","call_id":"c1","output":"r"},
		{"type":"message","id":"msg_3","status":"completed","role":"user","content":[{"type":"output_text","text":"more"}]}]`)
	require.NoError(t, err)
	assert.Equal(t, []int64{9, 3, 12}, []int64{usage.GetInputTokens(), usage.GetOutputTokens(), usage.GetTotalTokens()})
	var roles []modelv1.Role
	for _, m := range messages {
		roles = append(roles, m.GetRole())
		assert.NotEmpty(t, m.GetId())
		assert.Equal(t, modelv1.MessageSource_MESSAGE_SOURCE_GENERATE, m.GetSource())
	}
	const user, assistant, tool = modelv1.Role_ROLE_USER, modelv1.Role_ROLE_ASSISTANT, modelv1.Role_ROLE_TOOL
	require.Equal(t, []modelv1.Role{user, user, assistant, tool, user}, roles)
	assert.JSONEq(t, `{"compaction_metadata":{"type":"openai_compact","id":"cmp_1","encrypted_content":"c2VhbGVk"}}`, messages[1].GetContent().GetList().GetParts()[0].GetData().GetJson())
	assert.Equal(t, `{"x":1}`, messages[2].GetToolCalls()[0].GetArgumentsJson())

	body, err := openairesponses.Codec{}.AppendRequest(nil, &dialect.Request{Model: "m", Messages: messages})
	require.NoError(t, err)
	assert.JSONEq(t, `{"model":"m","input":[
		{"type":"message","role":"user","content":[{"type":"input_text","text":"q"},{"type":"input_image","image_url":"data:image/png;base64,aGk=","detail":"auto"}]},
		{"type":"compaction","id":"cmp_1","encrypted_content":"c2VhbGVk"},
		{"type":"reasoning","id":"rs_1","summary":[],"content":[],"encrypted_content":"dGhvdWdodA=="},
		{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]}]},
		{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\":1}"},
		{"type":"function_call_output","call_id":"c1","output":"r"},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"more"}]}]}`, string(body))

	read, err := openairesponses.Codec{}.ParseRequest(body)
	require.NoError(t, err)
	assert.Equal(t, messages[1].GetContent().GetList().GetParts()[0].GetData().GetJson(), read.Messages[1].GetContent().GetList().GetParts()[0].GetData().GetJson(), "a client sends it as it came")
}

// An answer that would lose a part of the conversation is none.
func TestAnAnswerThatCompactsNothing(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		`[]`: `no item of the type "compaction"`,
		`[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}]`:                                                              `no item of the type "compaction"`,
		`[{"type":"compaction","id":"cmp_1"}]`:                                                                                                               `output[0] has no encrypted_content`,
		`[{"type":"compaction","encrypted_content":"x"},{"type":"computer_call","id":"c"}]`:                                                                  `output[1] is of the type "computer_call"`,
		`[{"type":"compaction","encrypted_content":"x"},{"type":"message","role":"user","content":[{"type":"scent"}]}]`:                                      `output[1].content[0].type`,
		`[{"type":"compaction","encrypted_content":"x"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output"}]`: `output[2].output`,
	} {
		_, _, err := compacted(t, output)
		var malformed *dialect.MalformedError
		require.ErrorAs(t, err, &malformed, output)
		assert.ErrorContains(t, err, want)
	}
}

// What another provider compacted cannot be read here, and what stands beside a compaction is not lost.
func TestACompactionBelongsToItsProvider(t *testing.T) {
	t.Parallel()
	for _, role := range []modelv1.Role{modelv1.Role_ROLE_USER, modelv1.Role_ROLE_ASSISTANT} {
		_, err := openairesponses.Codec{}.AppendRequest(nil, &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{
			chat.User("q"), kept(role, `{"compaction_metadata":{"type":"anthropic_compact","content":"short"}}`),
		}})
		var unsupported *dialect.UnsupportedError
		require.ErrorAs(t, err, &unsupported, role)
	}
	drawn := kept(modelv1.Role_ROLE_ASSISTANT, `{"compaction_metadata":{"type":"anthropic_compact","content":"short"}}`)
	drawn.Content.GetList().Parts = append(drawn.Content.GetList().Parts, chat.ImagePart("data:image/png;base64,aGk="))
	_, err := openairesponses.Codec{}.AppendRequest(nil, &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{drawn}})
	require.ErrorContains(t, err, dialect.OtherCompaction, "what follows it does not hide it")
	both := kept(modelv1.Role_ROLE_USER, `{"compaction_metadata":{"type":"openai_compact","encrypted_content":"x"}}`)
	both.Content.GetList().Parts = append(both.Content.GetList().Parts, chat.TextPart("and"))
	body, err := openairesponses.Codec{}.AppendRequest(nil, &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{both}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"model":"m","input":[{"type":"compaction","encrypted_content":"x"},{"type":"message","role":"user","content":[{"type":"input_text","text":"and"}]}]}`, string(body))
}

func TestACompactionIsAskedForByTheLastItem(t *testing.T) {
	t.Parallel()
	parse := func(items string) (*dialect.Request, error) {
		return openairesponses.Codec{}.ParseRequest([]byte(`{"model":"m","input":[` + items + `]}`))
	}
	const asked, trigger = `{"role":"user","content":"q"}`, `{"type":"compaction_trigger"}`
	r, err := parse(asked + "," + trigger)
	require.NoError(t, err)
	assert.True(t, r.Compact)
	assert.Len(t, r.Messages, 1)
	for items, want := range map[string]string{
		trigger + "," + asked:            "input[0].type",
		trigger:                          "input",
		asked + `,{"type":"compaction"}`: "input[1].encrypted_content",
		asked + `,{"type":"compaction","encrypted_content":"evalfleet:9:abc"}`:                                            "input[1].encrypted_content",
		asked + `,{"type":"compaction","encrypted_content":"` + dialect.Seal(chat.SealedPart("s", new("thought"))) + `"}`: "input[1].encrypted_content",
	} {
		_, err := parse(items)
		wrong, ok := errors.AsType[*dialect.RequestError](err)
		require.True(t, ok, items)
		assert.Equal(t, want, wrong.Param, items)
	}
}
