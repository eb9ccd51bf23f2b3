package chat_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

func TestIdsAreDistinctAndOfOneLength(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		id := chat.NewID()
		require.Len(t, id, 22)
		require.False(t, seen[id])
		seen[id] = true
	}
}

// everything is a conversation with each kind of message and content.
const everything = `[
	{"id": "s", "content": "rules", "source": "input", "metadata": {"z": 1, "a": [1.0, 1e400]}, "role": "system"},
	{"id": "u", "content": [
		{"internal": {"k": [1, 2]}, "type": "text", "text": "see <b> & \u2028", "refusal": false, "citations": [
			{"cited_text": "x", "title": "T", "internal": {"i": 1}, "type": "url", "url": "https://a"},
			{"cited_text": [0, 3], "type": "document", "range": {"type": "page", "start_index": 1, "end_index": 2}},
			{"type": "content"}], "cache_breakpoint": true},
		{"type": "image", "image": "data:image/png;base64,AAAA", "detail": "low"},
		{"type": "audio", "audio": "blob:sha256:00ff", "format": "wav"},
		{"type": "video", "video": "v.mp4", "format": "mp4"},
		{"type": "document", "document": "d.pdf", "filename": "d.pdf", "mime_type": "application/pdf", "citations": true},
		{"type": "data", "data": {"b": 1, "a": 123456789012345678901234567890}}], "role": "user", "tool_call_id": ["c1", "c2"]},
	{"id": "a", "content": [
		{"internal": "x", "type": "reasoning", "reasoning": "why", "summary": "s", "signature": "g", "redacted": true},
		{"type": "tool_use", "tool_type": "mcp_call", "id": "1", "name": "n", "context": "c", "arguments": "{}", "result": "r", "error": "e"}],
		"source": "generate", "role": "assistant", "tool_calls": [
		{"id": "c1", "function": "f", "arguments": {"z": 1.0, "a": 123456789012345678901234567890}, "parse_error": "bad", "internal": [1],
			"view": {"title": "t", "format": "markdown", "content": "c"}, "type": "custom"}], "model": "m"},
	{"id": "e", "content": "", "role": "assistant", "tool_calls": []},
	{"id": "t", "content": "r", "internal": {"old": true}, "role": "tool", "tool_call_id": "c1", "function": "f", "error": {"type": "timeout", "message": "slow"}}
]`

func TestTheJSONFormLosesNothing(t *testing.T) {
	t.Parallel()
	messages, err := chattest.Messages([]byte(everything))
	require.NoError(t, err)
	written := chat.MessagesJSON(messages)
	again, err := chattest.Messages(written)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(messages, again, protocmp.Transform()))
	assert.JSONEq(t, strings.ReplaceAll(everything, "1e400", "1"), strings.ReplaceAll(string(written), "1e400", "1"))
	assert.Contains(t, string(written), `{"z": 1.0, "a": 123456789012345678901234567890}`, "JSON of others goes through byte for byte")
}

// Who can read a seal is kept in `internal`, which readers of the form pass on.
func TestTheJSONFormKeepsWhoCanReadASeal(t *testing.T) {
	t.Parallel()
	for internal, want := range map[string]string{
		"":                      `{"evalfleet.sealed_by":"anthropic/claude"}`,
		`{"b":1.0,"a":[1e400]}`: `{"b":1.0,"a":[1e400],"evalfleet.sealed_by":"anthropic/claude"}`,
	} {
		part := chat.SealedPart("seal", nil)
		part.InternalJson, part.GetReasoning().SealedBy = internal, "anthropic/claude"
		m := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(part)}
		written := chat.MessageJSON(m)
		assert.Contains(t, strings.Join(strings.Fields(string(written)), ""), `"internal":`+want)
		again, err := chat.ParseStoredMessage(written)
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(m.GetContent(), again.GetContent(), protocmp.Transform()))
	}
}

// What is no name of a sealer, and what other parts have under its name, is left as it is.
func TestTheJSONFormTakesNothingElseForWhoCanReadASeal(t *testing.T) {
	t.Parallel()
	for _, internal := range []string{
		`"reasoning_details"`, `{"sealed_by":"x"}`, `{"evalfleet.sealed_by":1}`, `{"evalfleet.sealed_by":""}`,
		`{"evalfleet.sealed_by":"` + strings.Repeat("x", 513) + `"}`,
	} {
		part := `{"type":"reasoning","reasoning":"r","internal":` + internal + `}`
		m, err := chat.ParseMessage([]byte(`{"role":"assistant","content":[` + part + `]}`))
		require.NoError(t, err, internal)
		read := m.GetContent().GetList().GetParts()[0]
		assert.Equal(t, internal, read.GetInternalJson())
		assert.Empty(t, read.GetReasoning().GetSealedBy())
	}
	const internal = `{"evalfleet.sealed_by":"x"}`
	const text = `{"type":"text","text":"t","internal":` + internal + `}`
	m, err := chat.ParseMessage([]byte(`{"role":"assistant","content":[` + text + `]}`))
	require.NoError(t, err)
	assert.Equal(t, internal, m.GetContent().GetList().GetParts()[0].GetInternalJson())
	// A text belongs to the model's API as a whole.
	part := chat.SealedPart("seal", nil)
	part.InternalJson, part.GetReasoning().SealedBy = `"reasoning_details"`, "openai-chat"
	said := chat.Assistant("")
	said.Content = chat.ListContent(part)
	assert.Contains(t, string(chat.MessageJSON(said)), `"reasoning_details"`)
}

func TestFaultsNameTheirField(t *testing.T) {
	t.Parallel()
	for document, says := range map[string]string{
		`{"role": "user"}`: "content: is required",
		`{"role": "user", "content": [{"type": "image"}]}`:                                                      "content.0.image: is required",
		`{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "hologram"}]}`:                    `content.1.type: is no type of content: "hologram"`,
		`{"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": "f", "arguments": "{}"}]}`: "tool_calls.0.arguments: must be an object",
		`{"role": "tool", "content": "", "error": {"type": "explosion", "message": "m"}}`:                       `error.type: is no type of tool error`,
		`{"role": "developer", "content": ""}`:                                                                  "role: must be system, user, assistant or tool",
		`"hello"`:                                                                                               "must be an object",
	} {
		_, err := chat.ParseMessage([]byte(document))
		require.Error(t, err, document)
		assert.ErrorContains(t, err, says)
	}
	_, err := chat.ParseMessages([]byte(`[{"role": "user", "content": "a"}, {"role": "user"}, {"role": "nobody"}]`))
	require.ErrorContains(t, err, "item 1")
	require.ErrorContains(t, err, "item 2")
	_, err = chat.ParseConfig([]byte(`{"temperatur": 1, "max_tokens": "many"}`))
	require.ErrorContains(t, err, "temperatur")
	require.ErrorContains(t, err, "max_tokens: must be an integer")
}

func TestAMessageWithoutARoleTakesTheOneThatItsFieldsShow(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]modelv1.Role{
		`{"content": "x"}`:                        modelv1.Role_ROLE_SYSTEM,
		`{"content": "x", "tool_call_id": "c"}`:   modelv1.Role_ROLE_TOOL,
		`{"content": "x", "tool_call_id": ["c"]}`: modelv1.Role_ROLE_USER,
		`{"content": "x", "function": "f"}`:       modelv1.Role_ROLE_TOOL,
		`{"content": "x", "tool_calls": []}`:      modelv1.Role_ROLE_ASSISTANT,
	} {
		m, err := chat.ParseMessage([]byte(document))
		require.NoError(t, err)
		assert.Equal(t, want, m.GetRole(), document)
	}
}

func TestReadersOfMessages(t *testing.T) {
	t.Parallel()
	messages := []*modelv1.ChatMessage{chat.System("s"), chat.User("first"), chat.Assistant("a"), chat.User("second")}
	assert.Equal(t, "second", chat.Text(chat.LastUser(messages)))
	assert.Equal(t, "a", chat.Text(chat.LastAssistant(messages)))
	assert.Nil(t, chat.LastAssistant(messages[:2]))
	result := chat.ToolMessage(&toolv1.ToolResult{CallId: "c", Function: "f"})
	assert.Equal(t, []string{"c"}, result.GetToolCallIds())
	assert.Empty(t, chat.Text(result))
	empty := &modelv1.ModelOutput{}
	assert.Nil(t, chat.FirstMessage(empty))
	assert.Empty(t, chat.Completion(empty))
}

func TestSetTextLeavesTheOldContentAlone(t *testing.T) {
	t.Parallel()
	parts := []*contentv1.Content{chat.TextPart("a"), chat.ReasoningPart("r"), chat.TextPart("b")}
	content := chat.ListContent(parts...)
	m := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: content}
	chat.SetText(m, "new")
	assert.Equal(t, "new", chat.Text(m))
	assert.Equal(t, "a\nb", chat.ContentText(content), "whoever shares the content does not see the change")
}

func TestMergeChangesNeitherSide(t *testing.T) {
	t.Parallel()
	base := &modelv1.GenerateConfig{Temperature: new(0.5), StopSeqs: &modelv1.StringList{Values: []string{"a"}}}
	over := &modelv1.GenerateConfig{Temperature: new(0.0), StopSeqs: &modelv1.StringList{}}
	merged := chat.Merge(base, nil, over)
	assert.InDelta(t, 0, merged.GetTemperature(), 0)
	assert.Empty(t, merged.GetStopSeqs().GetValues())
	merged.StopSeqs.Values = append(merged.StopSeqs.Values, "x")
	assert.Empty(t, over.GetStopSeqs().GetValues())
	assert.Equal(t, []string{"a"}, base.GetStopSeqs().GetValues())
}

func TestAnOptionIsChangedWhereItHasTheAskedValue(t *testing.T) {
	t.Parallel()
	changes := []*modelv1.ChangedOption{
		{Option: "reasoning_effort", Asked: "minimal", Sent: "low"},
		{Option: "reasoning_effort", Asked: "low", Sent: "high"},
		{Option: "effort", Asked: "max", Sent: "high"},
		{Option: "temperature", Asked: "0.5", Sent: "1"},
		{Option: "odd", Asked: "a", Sent: "b"},
	}
	asked := &modelv1.GenerateConfig{ReasoningEffort: new("minimal"), Temperature: new(0.5)}
	assert.Equal(t, "low", chat.Changed(asked, changes).GetReasoningEffort(), "once")
	assert.Equal(t, "minimal", asked.GetReasoningEffort(), "the given configuration stays")
	other := &modelv1.GenerateConfig{ReasoningEffort: new("medium")}
	assert.Same(t, other, chat.Changed(other, changes))
	assert.Nil(t, chat.Changed(nil, changes))
}

func TestEveryOptionIsReadAndWritten(t *testing.T) {
	t.Parallel()
	fields := (&modelv1.GenerateConfig{}).ProtoReflect().Descriptor().Fields()
	known := map[string]bool{}
	for _, name := range chat.ConfigOptions() {
		known[name] = true
	}
	for i := range fields.Len() {
		name := strings.TrimSuffix(string(fields.Get(i).Name()), "_json")
		assert.True(t, known[name], "the option %s has no JSON form", name)
	}
	assert.Len(t, known, fields.Len())
}

// A size of zero in an object asks for batches, as a number it asks for none.
func TestABatchThatIsOnStaysOn(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{`{"size":0}`: `{"size":0}`, `0`: `0`, `false`: `false`, `{}`: `true`, `5`: `5`} {
		c, err := chat.ParseConfig([]byte(`{"batch":` + given + `}`))
		require.NoError(t, err)
		assert.JSONEq(t, `{"batch":`+want+`}`, string(chat.ConfigJSON(c)))
	}
}

func TestTypesOfASchemaThatDoNotExistAreRefused(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{`{"type":"text"}`, `{"type":["string","text"]}`, `{"type":"object","properties":{"a":null}}`} {
		_, err := chat.ParseConfig([]byte(`{"response_schema":{"name":"n","json_schema":` + schema + `}}`))
		assert.Error(t, err, schema)
	}
	_, err := chat.ParseConfig([]byte(`{"response_schema":{"name":"n","json_schema":{"type":["string","null"],"properties":{"a":{}}}}}`))
	assert.NoError(t, err)
}

func TestTheTypeOfADocumentIsGuessedByItsName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a/b.PDF": "application/pdf", "x.tgz": "application/x-tar", "x.txz": "application/x-tar", "x.svgz": "image/svg+xml", "x.csv.gz": "text/csv", "x.json.br": "application/json", ".txt": "application/octet-stream",
		"x.c": "text/plain", "x.vtt": "text/vtt", "x.strange": "application/octet-stream",
	} {
		m, err := chat.ParseMessage([]byte(`{"role":"user","content":[{"type":"document","document":"` + name + `"}]}`))
		require.NoError(t, err)
		assert.Equal(t, want, m.GetContent().GetList().GetParts()[0].GetDocument().GetMimeType(), name)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte(`[{"content": "x"}, {"role": "tool", "content": [], "tool_error": "e"}]`))
	f.Fuzz(func(t *testing.T, document []byte) {
		messages, err := chattest.Messages(document)
		if err != nil {
			return
		}
		written := chat.MessagesJSON(messages)
		again, err := chattest.Messages(written)
		if err != nil {
			t.Fatalf("cannot read what was written: %v\n%s", err, written)
		}
		if diff := cmp.Diff(messages, again, protocmp.Transform()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"temperature": 1, "cache": {"expiry": null}, "batch": 7, "adaptive_connections": "2-4-8", "modalities": ["image"]}`))
	f.Add([]byte(`{"adaptive_connections": {"max": 3}, "logit_bias": {"1": 2}, "cache_prompt": "auto", "response_schema": {"name": "n", "json_schema": {}}}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		c, err := chat.ParseConfig(document)
		if err != nil {
			return
		}
		written := chat.ConfigJSON(c)
		again, err := chat.ParseConfig(written)
		if err != nil {
			t.Fatalf("cannot read what was written: %v\n%s", err, written)
		}
		if diff := cmp.Diff(chat.ConfigJSON(c), chat.ConfigJSON(again)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzOutput(f *testing.F) {
	f.Add([]byte(`{"model": "m", "choices": [{"message": {"content": "x"}, "logprobs": {"content": [{"token": "a", "logprob": -1, "bytes": [97]}]}}], "usage": {}}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		output, err := chat.ParseStoredOutput(document)
		if err != nil {
			return
		}
		again, err := chat.ParseStoredOutput(chat.OutputJSON(output))
		if err != nil {
			t.Fatalf("cannot read what was written: %v", err)
		}
		if diff := cmp.Diff(output, again, protocmp.Transform()); diff != "" {
			t.Fatal(diff)
		}
	})
}
