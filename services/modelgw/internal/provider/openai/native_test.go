package openai_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func searchTool(options string) *toolv1.ToolInfo {
	return &toolv1.ToolInfo{Name: "web_search", ParametersJson: `{"type":"object"}`, OptionsJson: `{"__internal_tool_type__":"web_search","openai":` + options + `}`}
}

func codeTool(options string) *toolv1.ToolInfo {
	return &toolv1.ToolInfo{
		Name: "code_execution", ParametersJson: `{"type":"object"}`, OptionsJson: `{"__internal_tool_type__":"code_execution","providers":{"openai":` + options + `}}`,
	}
}

// askWith sends a request to a model, which has an answer, and returns the request's body and the response.
func askWith(t *testing.T, model, args, answer string, r *provider.Request) (body map[string]any, response *provider.Response) {
	t.Helper()
	url, received := scripted(t, func(string) (int, string) { return http.StatusOK, answer })
	if r.Messages == nil {
		r.Messages = []*modelv1.ChatMessage{chat.User("q")}
	}
	response, err := openAt(t, url, model, args).Generate(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, received(), 1)
	require.NoError(t, json.Unmarshal([]byte(received()[0]), &body))
	return body, response
}

func TestToolsThatTheServerRuns(t *testing.T) {
	t.Parallel()
	server := &toolv1.ToolInfo{Name: "mcp_server_docs", OptionsJson: `{"name":"docs","type":"http","url":"https://mcp.example","headers":{"Authorization":"s3cret"},"tools":["find"]}`}
	for name, tt := range map[string]struct {
		tool                  *toolv1.ToolInfo
		model, tools, choices string
	}{
		"a search":             {searchTool(`{"search_context_size":"low"}`), "gpt-5", `[{"type":"web_search","search_context_size":"low"}]`, `{"type":"web_search_preview"}`},
		"an old model":         {searchTool(`{}`), "gpt-4", `[{"type":"function","name":"web_search","description":"","parameters":{"type":"object"},"strict":false}]`, `{"type":"function","name":"web_search"}`},
		"code":                 {codeTool(`{}`), "gpt-4o", `[{"type":"code_interpreter","container":{"type":"auto"}}]`, `{"type":"code_interpreter"}`},
		"code in a container":  {codeTool(`{"container":"c"}`), "o3", `[{"type":"code_interpreter","container":"c"}]`, `{"type":"code_interpreter"}`},
		"code of another":      {codeTool(`false`), "o3", `[{"type":"function","name":"code_execution","description":"","parameters":{"type":"object"},"strict":false}]`, `{"type":"function","name":"code_execution"}`},
		"a server's own tools": {server, "gpt-4", `[{"type":"mcp","server_label":"docs","server_url":"https://mcp.example","headers":{"Authorization":"s3cret"},"allowed_tools":["find"],"require_approval":"never"}]`, `{"type":"mcp","server_label":"docs"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, response := askWith(t, tt.model, byResponses, answered, &provider.Request{
				Tools: []*toolv1.ToolInfo{tt.tool}, ToolChoice: chat.FunctionChoice(tt.tool.GetName()), Record: provider.RecordAll,
			})
			tools, _ := json.Marshal(body["tools"])
			assert.JSONEq(t, tt.tools, string(tools))
			choice, _ := json.Marshal(body["tool_choice"])
			assert.JSONEq(t, tt.choices, string(choice))
			assert.Equal(t, strings.Contains(tt.tools, "code_interpreter"), strings.Contains(response.Call.GetRequestJson(), "code_interpreter_call.outputs"))
			assert.NotContains(t, response.Call.String(), "s3cret")
		})
	}
}

// Chat completions have no such tools: the call goes to the other API, and options that this one lacks are named.
func TestAModelOfChatCompletionsUsesTheOtherAPIForTools(t *testing.T) {
	t.Parallel()
	c := &modelv1.GenerateConfig{StopSeqs: &modelv1.StringList{Values: []string{"x"}}}
	body, response := askWith(t, "gpt-4o", `{"responses_api": false}`, answered, &provider.Request{Tools: []*toolv1.ToolInfo{searchTool(`{}`)}, Config: c})
	assert.NotContains(t, body, "stop")
	require.Len(t, response.Warnings, 1)
	assert.Contains(t, response.Warnings[0], "stop_seqs")
}

// A model that is used by that API for its tools alone is asked for no summary of its reasoning, unless the call wants
// one. For a picture it is.
func TestToolsAloneBringNoSummary(t *testing.T) {
	t.Parallel()
	tools := []*toolv1.ToolInfo{codeTool(`{}`)}
	for _, tt := range []struct {
		config *modelv1.GenerateConfig
		tools  []*toolv1.ToolInfo
		want   any
	}{
		{&modelv1.GenerateConfig{}, tools, nil},
		{&modelv1.GenerateConfig{ReasoningSummary: new("concise")}, tools, map[string]any{"summary": "concise"}},
		{&modelv1.GenerateConfig{Modalities: &modelv1.ModalityList{Values: []*modelv1.Modality{{Type: "image"}}}}, nil, map[string]any{"summary": "auto"}},
	} {
		body, _ := askWith(t, "o4-mini", `{"responses_api": false}`, answered, &provider.Request{Tools: tt.tools, Config: tt.config})
		assert.Contains(t, body, "input", "it is the Responses API")
		assert.Equal(t, tt.want, body["reasoning"])
	}
}

const todoSchema = `{"type":"object","properties":{"todos":{"type":"array","description":"d","items":{"type":"object","properties":{"content":{"type":"string"},
	"status":{"type":"string","enum":["pending","in_progress","completed"]}},"required":["content","status"],"additionalProperties":false}},
	"explanation":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["todos"],"additionalProperties":false}`

// Models know plans by another name and other arguments, which callers see nowhere.
func TestThePlanIsTheModelsOwn(t *testing.T) {
	t.Parallel()
	const arguments = `{\"plan\":[{\"step\":\"a\",\"status\":\"pending\"}]}`
	const call = `{"id":"fc_1","type":"function_call","call_id":"c2","name":"update_plan","arguments":"` + arguments + `"}`
	const whole = `{"id":"r","status":"completed","model":"m","output":[` + call + `],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}`
	const stream = `data: {"type":"response.output_item.added","output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"c2","name":"update_plan","arguments":""}}

data: {"type":"response.function_call_arguments.delta","output_index":0,"delta":"` + arguments + `"}

data: {"type":"response.output_item.done","output_index":0,"item":` + call + `}

data: {"type":"response.completed","response":` + whole + `}

`
	const todos = `{"todos":[{"content":"a","status":"pending"}]}`
	for name, answer := range map[string]string{"whole": whole, "in pieces": stream} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var streamed strings.Builder
			r := &provider.Request{
				Tools: []*toolv1.ToolInfo{{Name: "todo_write", ParametersJson: todoSchema}}, ToolChoice: chat.FunctionChoice("todo_write"),
				Messages: []*modelv1.ChatMessage{
					chat.User("q"), chat.Assistant("", chat.Call("c1", "todo_write", todos)),
					chat.ToolMessage(&toolv1.ToolResult{CallId: "c1", Function: "todo_write", Content: chat.TextContent("ok")}),
				},
			}
			if answer == stream {
				r.Stream = func(d *modelv1.GenerateDelta) {
					streamed.WriteString(d.GetToolCall().GetFunction() + d.GetToolCall().GetArguments())
				}
			}
			body, response := askWith(t, "gpt-4o", byResponses, answer, r)
			assert.Equal(t, map[string]any{"type": "function", "name": "update_plan"}, body["tool_choice"])
			before, _ := body["input"].([]any)[1].(map[string]any)
			assert.Equal(t, "update_plan", before["name"])
			assert.JSONEq(t, `{"plan":[{"step":"a","status":"pending"}]}`, before["arguments"].(string))
			got := chat.FirstMessage(response.Output).GetToolCalls()[0]
			assert.Equal(t, "todo_write", got.GetFunction())
			assert.JSONEq(t, todos, got.GetArgumentsJson())
			if answer == stream {
				pieces, ok := strings.CutPrefix(streamed.String(), "todo_write")
				require.True(t, ok, streamed.String())
				assert.JSONEq(t, todos, pieces)
			}
		})
	}
	for name, r := range map[string]*provider.Request{
		"another schema":   {Tools: []*toolv1.ToolInfo{{Name: "todo_write", ParametersJson: `{"type":"object"}`}}},
		"both tools":       {Tools: []*toolv1.ToolInfo{{Name: "todo_write", ParametersJson: todoSchema}, {Name: "update_plan"}}},
		"not to be mapped": {Tools: []*toolv1.ToolInfo{{Name: "todo_write", ParametersJson: todoSchema}}, Config: &modelv1.GenerateConfig{InternalTools: new(false)}},
	} {
		body, _ := askWith(t, "gpt-4o", byResponses, answered, r)
		tool, _ := body["tools"].([]any)[0].(map[string]any)
		assert.Equal(t, "todo_write", tool["name"], name)
	}
}
