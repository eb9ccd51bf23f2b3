package hosted_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// answers are what vendors say of their own tools, each with a search, code and a server's tool as far as it has them.
var answers = map[string]struct {
	codec dialect.Codec
	body  string
}{
	"anthropic": {anthropic.Codec{}, `{"id":"m","model":"c","stop_reason":"end_turn","content":[
		{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q"}},
		{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://a.example","title":"A","encrypted_content":"E"}]},
		{"type":"text","text":"Ære.","citations":[{"type":"web_search_result_location","cited_text":"t","title":"A","url":"https://a.example","encrypted_index":"I"}]},
		{"type":"server_tool_use","id":"srvtoolu_2","name":"bash_code_execution","input":{"command":"ls"}},
		{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_2","content":{"type":"bash_code_execution_result","stdout":"1","stderr":"2","return_code":0,"content":[]}},
		{"type":"mcp_tool_use","id":"mcptoolu_3","name":"look","server_name":"s","input":{"a":1}},
		{"type":"mcp_tool_result","tool_use_id":"mcptoolu_3","is_error":false,"content":[{"type":"text","text":"seen"}]},
		{"type":"text","text":"So."}]}`},
	"openai": {openairesponses.Codec{}, `{"id":"r","model":"g","status":"completed","output":[
		{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[{"name":"look","input_schema":{"type":"object"}}]},
		{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q","sources":[{"type":"url","url":"https://a.example"}]}},
		{"type":"web_search_call","id":"ws_2","status":"completed","action":{"type":"open_page","url":"https://a.example"}},
		{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Ære.","annotations":[{"type":"url_citation","url":"https://a.example","title":"A","start_index":0,"end_index":3}]}]},
		{"type":"code_interpreter_call","id":"ci_1","status":"completed","code":"print(1)","outputs":[{"type":"logs","logs":"1"}]},
		{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"look","arguments":"{\"a\":1}","output":"seen"},
		{"type":"mcp_call","id":"mcp_2","server_label":"s","name":"look","arguments":"{}","error":"no"},
		{"type":"message","id":"msg_2","role":"assistant","content":[{"type":"output_text","text":"So.","annotations":[]}]}]}`},
	"gemini": {gemini.Codec{}, `{"candidates":[{"finishReason":"STOP","content":{"role":"model","parts":[
		{"executableCode":{"language":"PYTHON","code":"print(1)"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}},{"text":"Ære."}]},
		"groundingMetadata":{"webSearchQueries":["q","r"],"groundingChunks":[{"web":{"uri":"https://a.example","title":"A"}}],
			"groundingSupports":[{"segment":{"endIndex":4,"text":"Ære"},"groundingChunkIndices":[0]}]}}]}`},
}

// read is an answer in the canonical form, to a request that offered a search.
func read(t *testing.T, from string) *modelv1.ModelOutput {
	t.Helper()
	r, err := gemini.Codec{}.ParseRequest([]byte(`{"contents":[{"parts":[{"text":"q"}]}],"tools":[{"googleSearch":{}}]}`))
	require.NoError(t, err)
	response, err := answers[from].codec.DecodeResponse([]byte(answers[from].body))
	require.NoError(t, err)
	output, err := response.Output(r.Tools)
	require.NoError(t, err)
	return output
}

// done are the kinds of what tools did, and how many sources are told.
func done(output *modelv1.ModelOutput) string {
	var all []string
	sources := 0
	for _, part := range chat.Parts(chat.FirstMessage(output).GetContent()) {
		if use := part.GetToolUse(); use != nil {
			all = append(all, use.GetToolType().String())
		}
		sources += len(part.GetText().GetCitations())
	}
	return fmt.Sprint(all, sources)
}

// What a vendor's tools did is in the answers of every format, and in each as its vendor would say it.
func TestWhatToolsDidIsToldInTheClientsForm(t *testing.T) {
	t.Parallel()
	for pair, want := range map[string][]string{
		"anthropic>anthropic": {`"encrypted_content":"E"`, `"encrypted_index":"I"`, `"name":"bash_code_execution"`, `"content":[{"text":"seen","type":"text"}]`},
		"anthropic>openai":    {`"type":"web_search_call","status":"completed","action":{"type":"search","query":"q","sources":[{"type":"url","url":"https://a.example"}]}`, `"start_index":0,"end_index":4,"url":"https://a.example","title":"A"`, `"type":"code_interpreter_call","status":"completed","code":"ls","container_id":"evalfleet:elsewhere","outputs":[{"type":"logs","logs":"12"}]`, `"id":"mcp_mcptoolu_3","type":"mcp_call","server_label":"s"`, `"output":"seen","error":null`},
		"anthropic>gemini":    {`"executableCode":{"language":"PYTHON","code":"ls"}`, `"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"12"}`, `"webSearchQueries":["q"]`, `"web":{"uri":"https://a.example","title":"A"}`, `"startIndex":0,"endIndex":5,"text":"Ære."`},
		"openai>anthropic":    {`"id":"srvtoolu_ws_1","name":"web_search","input":{"type":"search","query":"q"}`, `"input":{"query":"https://a.example"}`, `"id":"srvtoolu_ci_1","name":"code_execution","input":{"code":"print(1)"}`, `"stdout":"1"`, `"id":"mcptoolu_mcp_1","name":"look","server_name":"s","input":{"a":1}`, `"is_error":true,"content":"no"`, `"type":"web_search_result_location"`},
		"openai>openai":       {`"id":"ws_1"`, `"id":"ci_1"`, `"id":"mcp_1"`, `"error":{"type":"mcp_tool_execution_error","content":[{"type":"text","text":"no"}]}`, `"end_index":3`},
		"openai>gemini":       {`"code":"print(1)"`, `"webSearchQueries":["q","https://a.example"]`, `"startIndex":0,"endIndex":4,"text":"Ære"`},
		"gemini>anthropic":    {`"name":"web_search","input":{"query":"q","queries":["q","r"]}`, `"url":"https://a.example","title":"A"`, `"input":{"code":"print(1)"}`},
		"gemini>openai":       {`"type":"web_search_call"`, `"query":"q"`, `"url":"https://a.example"`, `"code":"print(1)"`, `"end_index":3`},
		"gemini>gemini":       {`"webSearchQueries":["q"]`, `"startIndex":0,"endIndex":4,"text":"Ære"`, `"partIndex":2`},
	} {
		from, to, ok := strings.Cut(pair, ">")
		require.True(t, ok)
		body, err := answers[to].codec.AppendResponse(nil, read(t, from), dialect.ResponseMeta{})
		require.NoError(t, err)
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, body))
		for _, said := range want {
			assert.Contains(t, compact.String(), said, pair)
		}
	}
}

// A stream tells the same as a whole answer, in the order in which it was done.
func TestWhatToolsDidIsInStreams(t *testing.T) {
	t.Parallel()
	for from, vendor := range answers {
		output := read(t, from)
		for to, client := range answers {
			var sent, got bytes.Buffer
			require.NoError(t, vendor.codec.NewStreamWriter(&sent, dialect.ResponseMeta{}).Close(output))
			reader, writer := vendor.codec.NewStreamReader(), client.codec.NewStreamWriter(&got, dialect.ResponseMeta{})
			for event, err := range vendor.codec.ReadEvents(&sent) {
				require.NoError(t, err)
				pieces, err := reader.Add(event)
				require.NoError(t, err)
				for _, piece := range pieces {
					require.NoError(t, writer.Write(piece))
				}
			}
			whole, err := reader.Response().Output(nil)
			require.NoError(t, err)
			require.NoError(t, writer.Close(whole))
			body, err := client.codec.AppendResponse(nil, whole, dialect.ResponseMeta{})
			require.NoError(t, err)
			answer, err := client.codec.DecodeResponse(body)
			require.NoError(t, err)
			want, err := answer.Output(nil)
			require.NoError(t, err)

			back := client.codec.NewStreamReader()
			for event, err := range client.codec.ReadEvents(&got) {
				require.NoError(t, err)
				_, err = back.Add(event)
				require.NoError(t, err, string(event.Data))
			}
			streamed, err := back.Response().Output(nil)
			require.NoError(t, err)
			assert.Equal(t, done(want), done(streamed), "%s to %s", from, to)
			text := func(output *modelv1.ModelOutput) string {
				return strings.ReplaceAll(chat.Text(chat.FirstMessage(output)), "\n", "")
			}
			assert.Equal(t, text(want), text(streamed), "%s to %s", from, to)
		}
	}
}

// Code that failed has written what it wrote, and of a failure that says no more its word is all.
func TestCodeThatFailed(t *testing.T) {
	t.Parallel()
	for item, want := range map[string]string{
		`{"status":"failed","code":"x","outputs":[{"type":"logs","logs":"no such name: x"}]}`: "no such name: x",
		`{"status":"failed","code":"x","outputs":[]}`:                                         "failed",
	} {
		use, err := hosted.OpenAIUse(hosted.OpenAICode, []byte(item))
		require.NoError(t, err)
		assert.Equal(t, want, hosted.Output(use))
		assert.Contains(t, hosted.OpenAIItem(use, "completed"), want)
	}
}

// What a client sends back is what the tools did, as far as its format has a place for it.
func TestWhatToolsDidComesBack(t *testing.T) {
	t.Parallel()
	uses := func(parts []*contentv1.Content) (all []string) {
		for _, part := range parts {
			switch use := part.GetToolUse(); use.GetToolType() { //nolint:exhaustive // a part that is no use of a tool
			case contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH:
				all = append(all, "search: "+hosted.Query(use))
			case contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION:
				all = append(all, "code: "+hosted.Code(use)+" = "+hosted.Output(use))
			case contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL:
				all = append(all, use.GetContext()+"."+use.GetName()+use.GetArguments()+" = "+strings.Join(slices.DeleteFunc([]string{use.GetResult(), use.GetError()}, func(s string) bool { return s == "" }), ", "))
			}
		}
		return all
	}
	for pair, want := range map[string][]string{
		"anthropic>openai": {"search: q", "code: ls = 12", "s.look{\n  \"a\": 1\n} = seen"},
		"openai>anthropic": {"search: q", "search: https://a.example", "code: print(1) = 1", "s.look{\n  \"a\": 1\n} = seen", "s.look{} = no, no"},
	} {
		from, to, _ := strings.Cut(pair, ">")
		output := read(t, from)
		body, err := answers[to].codec.AppendResponse(nil, output, dialect.ResponseMeta{})
		require.NoError(t, err)
		var said struct{ Output, Content json.RawMessage }
		require.NoError(t, json.Unmarshal(body, &said))
		request := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":` + string(said.Content) + `},{"role":"user","content":"r"}]}`
		if to == "openai" {
			request = `{"model":"m","input":[{"role":"user","content":"q"},` + strings.TrimPrefix(string(said.Output), "[")[:len(said.Output)-2] + `,{"role":"user","content":"r"}]}`
		}
		parsed, err := answers[to].codec.ParseRequest([]byte(request))
		require.NoError(t, err)
		require.Len(t, parsed.Messages, 3)
		got := uses(chat.Parts(parsed.Messages[1].GetContent()))
		assert.Equal(t, want, got, pair)
		again, err := answers[to].codec.ParseRequest([]byte(request))
		require.NoError(t, err)
		assert.Equal(t, got, uses(chat.Parts(again.Messages[1].GetContent())), "equal requests are equal conversations")
	}
}

// A conversation has the same bytes for a model of another vendor each time, and begins with those of its beginning.
func TestWhatToolsDidKeepsPrefixes(t *testing.T) {
	t.Parallel()
	ask := func(more string) string {
		r, err := gemini.Codec{}.ParseRequest([]byte(`{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[
			{"executableCode":{"language":"PYTHON","code":"1"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}},{"text":"a"}]}` + more + `]}`))
		require.NoError(t, err)
		r.Model = "m"
		body, err := anthropic.Codec{}.AppendRequest(nil, r)
		require.NoError(t, err)
		return strings.ReplaceAll(string(body), `,"cache_control":{"type":"ephemeral"}`, "") // Marks are in the last turn.
	}
	first := ask("")
	assert.Equal(t, first, ask(""))
	longer := ask(`,{"role":"user","parts":[{"text":"r"}]}`)
	assert.True(t, strings.HasPrefix(longer, strings.TrimSuffix(first, "]}")), "%s\n%s", first, longer)
}

// A conversation in which another vendor's tools were used goes as bytes to the client's own vendor without what that
// would refuse.
func TestTheClientsVendorTakesTheConversation(t *testing.T) {
	t.Parallel()
	take := func(*contentv1.Content) *contentv1.Content { return nil }
	for pair, want := range map[string][]string{
		"anthropic>openai": {`"type":"web_search_call"`, `"text":"code_interpreter: ls\n\n12"`, `"type":"mcp_call"`},
		"gemini>openai":    {`"type":"web_search_call"`, `"text":"code_interpreter: print(1)\n\n1"`},
		"openai>anthropic": {`"error_code":"unavailable"`, `"text":"Ære."`, `"type":"code_execution_tool_result"`},
	} {
		from, to, _ := strings.Cut(pair, ">")
		codec := answers[to].codec
		body, err := codec.AppendResponse(nil, read(t, from), dialect.ResponseMeta{})
		require.NoError(t, err)
		var said struct{ Output, Content json.RawMessage }
		require.NoError(t, json.Unmarshal(body, &said))
		request := `{"model":"m","input":` + string(said.Output) + `}`
		if to == "anthropic" {
			request = `{"model":"m","messages":[{"role":"assistant","content":` + string(said.Content) + `}]}`
		}
		require.Contains(t, request, "evalfleet:", pair)
		reopener, ok := codec.(dialect.Reopener)
		require.True(t, ok)
		reopened := string(reopener.Reopen([]byte(request), take, false))
		assert.NotContains(t, reopened, "evalfleet:", pair)
		assert.True(t, json.Valid([]byte(reopened)), reopened)
		for _, left := range want {
			assert.Contains(t, reopened, left, pair)
		}
	}
}

// The text of a server's tool stays a text, also one that begins like a list.
func TestATextOfAServersToolIsNoListOfBlocks(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"[INFO] done", "[1,2]", `["a"]`, `[{"a":1}]`, `[{"type":"text"`, `"quoted"`, "{}", "null", ""} {
		use := &contentv1.ToolUse{
			ToolType: contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL, Id: "mcp_1", Name: "look", Context: new("s"), Arguments: "{}", Result: text,
		}
		message := chat.Assistant("")
		message.Content = chat.ListContent(chat.ToolUsePart(use), chat.TextPart("So."))
		output := &modelv1.ModelOutput{Choices: []*modelv1.Choice{{Message: message, StopReason: modelv1.StopReason_STOP_REASON_STOP}}}
		for _, client := range []dialect.Codec{anthropic.Codec{}, openairesponses.Codec{}} {
			body, err := client.AppendResponse(nil, output, dialect.ResponseMeta{})
			require.NoError(t, err)
			response, err := client.DecodeResponse(body)
			require.NoError(t, err, "%s", body)
			got, err := response.Output(nil)
			require.NoError(t, err)
			assert.Equal(t, text, chat.Parts(chat.FirstMessage(got).GetContent())[0].GetToolUse().GetResult(), "%s", body)

			request := &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{chat.User("q"), message, chat.User("r")}, Config: &modelv1.GenerateConfig{MaxTokens: new(int64(9))}}
			sent, err := client.AppendRequest(nil, request)
			require.NoError(t, err)
			assert.True(t, json.Valid(sent), "%s", sent)
			quoted, err := json.Marshal(text)
			require.NoError(t, err)
			assert.Contains(t, string(sent), string(quoted))
		}
	}
}
