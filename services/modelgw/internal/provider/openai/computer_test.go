package openai_test

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// computerTool is the platform's computer, by its parameters in words.
func computerTool(parameters string) *toolv1.ToolInfo {
	properties := map[string]any{}
	for _, name := range strings.Fields(parameters) {
		properties[name] = map[string]any{}
	}
	schema, _ := json.Marshal(map[string]any{"type": "object", "properties": properties})
	return &toolv1.ToolInfo{Name: "computer", Description: "a computer", ParametersJson: string(schema)}
}

const wholeComputer = "action actions coordinate duration press_enter region repeat scroll_amount scroll_direction start_coordinate text"

// A call of OpenAI's computer is one of the platform's tool. It goes back as it came, with what the server wants to be
// acknowledged, and its result is a screenshot.
func TestAComputerInTheModelsOwnForm(t *testing.T) {
	t.Parallel()
	const item = `{"type":"computer_call","id":"cu_1","call_id":"c1","status":"completed","actions":[
		{"type":"click","button":"left","x":1,"y":2},{"type":"click","button":"wheel","x":1,"y":2},{"type":"double_click","x":3,"y":4},{"type":"move","x":5,"y":6},
		{"type":"drag","path":[{"x":0,"y":1},{"x":9,"y":9},{"x":2,"y":3}]},{"type":"keypress","keys":["CTRL","L"]},{"type":"scroll","x":1,"y":1,"scroll_x":0,"scroll_y":-300},
		{"type":"scroll","x":1,"y":1,"scroll_x":5,"scroll_y":1},{"type":"type","text":""},{"type":"wait"},{"type":"screenshot"},{"type":"fly"}],
		"pending_safety_checks":[{"id":"s1","code":"malicious","message":"m"}]}`
	const actions = `{"actions":[{"action":"left_click","coordinate":[1,2]},{"action":"middle_click","coordinate":[1,2]},{"action":"double_click","coordinate":[3,4]},
		{"action":"mouse_move","coordinate":[5,6]},{"action":"left_click_drag","start_coordinate":[0,1],"coordinate":[2,3]},{"action":"key","text":"CTRL+L"},
		{"action":"scroll","coordinate":[1,1],"scroll_direction":"up","scroll_amount":3},{"action":"scroll","coordinate":[1,1],"scroll_direction":"right","scroll_amount":1},
		{"action":"type","text":""},{"action":"wait","duration":1},{"action":"screenshot"},{"action":"fly"}]}`
	const whole = `{"id":"r","status":"completed","model":"m","output":[` + item + `],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}`
	oneLine := func(document string) string { return strings.NewReplacer("\n", "", "\t", "").Replace(document) }
	stream := "data: " + oneLine(`{"type":"response.output_item.added","output_index":0,"item":{"type":"computer_call","id":"cu_1","call_id":"c1"}}`) + "\n\n" +
		"data: " + oneLine(`{"type":"response.output_item.done","output_index":0,"item":`+item+`}`) + "\n\n" +
		"data: " + oneLine(`{"type":"response.completed","response":`+whole+`}`) + "\n\n"
	for name, answer := range map[string]string{"whole": whole, "in pieces": stream} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &provider.Request{Tools: []*toolv1.ToolInfo{computerTool(wholeComputer)}, ToolChoice: chat.FunctionChoice("computer")}
			var seen []string
			if answer == stream {
				r.Stream = func(d *modelv1.GenerateDelta) {
					seen = append(seen, d.GetToolCall().GetFunction(), d.GetToolCall().GetArguments())
				}
			}
			body, response := askWith(t, "gpt-5.4", byResponses, answer, r)
			assert.Equal(t, []any{map[string]any{"type": "computer"}}, body["tools"])
			assert.Equal(t, map[string]any{"type": "computer"}, body["tool_choice"])
			assert.NotContains(t, body, "store", "the server stores by default")
			assert.NotContains(t, body, "include")
			require.Len(t, response.Warnings, 1)
			assert.Contains(t, response.Warnings[0], "stored at OpenAI")
			message := chat.FirstMessage(response.Output)
			call := message.GetToolCalls()[0]
			assert.Equal(t, []string{"computer", "c1"}, []string{call.GetFunction(), call.GetId()})
			assert.JSONEq(t, actions, call.GetArgumentsJson())
			assert.Equal(t, "malicious: m", call.GetView().GetContent(), "who approves the call sees it")
			assert.Equal(t, modelv1.StopReason_STOP_REASON_TOOL_CALLS, response.Output.GetChoices()[0].GetStopReason())
			if answer == stream {
				assert.Equal(t, []string{"computer", call.GetArgumentsJson()}, seen)
			}

			for _, tt := range []struct {
				result *toolv1.ToolResult
				image  string
			}{
				{&toolv1.ToolResult{CallId: "c1", Function: "computer", Content: chat.ListContent(chat.TextPart("t"), chat.ImagePart("data:image/png;base64,AAAA"))}, "data:image/png;base64,AAAA"},
				{&toolv1.ToolResult{CallId: "c1", Function: "computer", Error: &toolv1.ToolCallError{Message: "no such key"}}, "data:image/png;base64,iVBOR"},
			} {
				r := &provider.Request{Tools: r.Tools, Messages: []*modelv1.ChatMessage{chat.User("q"), message, chat.ToolMessage(tt.result)}}
				body, _ := askWith(t, "gpt-5.4", byResponses, answered, r)
				input := body["input"].([]any)
				again, err := json.Marshal(input[1])
				require.NoError(t, err)
				assert.JSONEq(t, item, string(again))
				output := input[2].(map[string]any)
				assert.Equal(t, []any{"computer_call_output", "c1"}, []any{output["type"], output["call_id"]})
				assert.Equal(t, []any{map[string]any{"id": "s1", "code": "malicious", "message": "m"}}, output["acknowledged_safety_checks"])
				screenshot := output["output"].(map[string]any)
				assert.Contains(t, screenshot["image_url"], tt.image)
				assert.Equal(t, []any{"computer_screenshot", "original"}, []any{screenshot["type"], screenshot["detail"]})

				body, _ = askWith(t, "gpt-5", byResponses, answered, r) // which has no computer of its own
				input = body["input"].([]any)
				assert.Equal(t, []any{"function_call", "function_call_output"}, []any{input[1].(map[string]any)["type"], input[2].(map[string]any)["type"]})
			}
		})
	}
}

// A computer is a function with other models, for tools that take something else, and where nothing may be stored.
func TestAComputerThatIsAFunction(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		model, args string
		tool        *toolv1.ToolInfo
		config      *modelv1.GenerateConfig
		native      bool
	}{
		"gpt-5.4":             {model: "gpt-5.4", native: true},
		"a later one":         {model: "gpt-6-sol", native: true},
		"a code name":         {model: "harbour", native: true},
		"an earlier one":      {model: "gpt-5.2"},
		"a small one":         {model: "gpt-5.4-nano"},
		"a chat":              {model: "gpt-5.4-chat"},
		"another tool":        {model: "gpt-5.4", tool: computerTool("action")},
		"no tools of its own": {model: "gpt-5.4", config: &modelv1.GenerateConfig{InternalTools: new(false)}},
		"nothing stored":      {model: "gpt-5.4", args: `{"responses_api": true, "responses_store": false}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.tool == nil {
				tt.tool = computerTool(wholeComputer)
			}
			body, response := askWith(t, tt.model, cmp.Or(tt.args, byResponses), answered, &provider.Request{Tools: []*toolv1.ToolInfo{tt.tool}, Config: tt.config})
			want := "function"
			if tt.native {
				want = "computer"
			}
			assert.Equal(t, want, body["tools"].([]any)[0].(map[string]any)["type"])
			assert.Equal(t, tt.native, len(response.Warnings) > 0)
			_, says := body["store"]
			assert.Equal(t, !tt.native, says)
		})
	}
}
