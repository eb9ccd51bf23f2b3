package google_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// computerTool is a tool with these parameters, in words.
func computerTool(parameters string) *toolv1.ToolInfo {
	properties := map[string]any{}
	for _, name := range strings.Fields(parameters) {
		properties[name] = map[string]any{}
	}
	schema, _ := json.Marshal(map[string]any{"type": "object", "properties": properties})
	return &toolv1.ToolInfo{Name: "computer", Description: "a computer", ParametersJson: string(schema)}
}

const whole = "action actions coordinate duration press_enter region repeat scroll_amount scroll_direction start_coordinate text"

// conversing is a server that answers with calls of functions, and what it was asked.
func conversing(t *testing.T, calls string) (string, chan map[string]json.RawMessage) {
	t.Helper()
	asked := make(chan map[string]json.RawMessage, 9)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]json.RawMessage
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		asked <- body
		answer := `{"candidates":[{"content":{"role":"model","parts":[` + calls + `]},"finishReason":"STOP"}]}`
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.URL.Path, "stream") {
			w.Header().Set("Content-Type", "text/event-stream")
			answer = "data: " + answer + "\n\n"
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// A call that the server could not read is demanded also beside a computer, where the default choice has no name.
func TestACallThatCannotBeReadIsDemandedBesideAComputer(t *testing.T) {
	t.Parallel()
	asked := make(chan map[string]json.RawMessage, 9)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]json.RawMessage
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		asked <- body
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"print(f"}]}`)
	}))
	t.Cleanup(server.Close)
	_, err := opened(t, "gemini-2.5-computer-use-preview-10-2025", server.URL).Generate(t.Context(), &provider.Request{
		Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}, ToolChoice: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO),
		Tools: []*toolv1.ToolInfo{computerTool(whole), {Name: "other", Description: "d", ParametersJson: `{"type":"object","properties":{}}`}},
	})
	require.NoError(t, err)
	assert.NotContains(t, <-asked, "toolConfig")
	assert.JSONEq(t, `{"functionCallingConfig":{"mode":"ANY"}}`, string((<-asked)["toolConfig"]))
}

// Google's models for computers have functions of the server for it. What they call is a call of the tool that was
// offered, and goes back as it was called, with the screenshot within its result.
func TestAComputerIsTheServersFunctions(t *testing.T) {
	t.Parallel()
	const button = "data:image/png;base64,AAAA"
	for name, tt := range map[string]struct{ called, action, back string }{
		"a click":                {`{"name":"click_at","args":{"x":500,"y":250}}`, `{"action":"left_click","coordinate":[683,192]}`, ""},
		"a place":                {`{"name":"hover_at","args":{"x":0,"y":999}}`, `{"action":"mouse_move","coordinate":[0,767]}`, ""},
		"a text":                 {`{"name":"type_text_at","args":{"x":1,"y":2,"text":"a","press_enter":false}}`, `{"action":"type","coordinate":[1,2],"text":"a","press_enter":false}`, ""},
		"a text by default":      {`{"name":"type_text_at","args":{"x":1,"y":2,"text":"a"}}`, `{"action":"type","coordinate":[1,2],"text":"a","press_enter":true}`, ""},
		"keys":                   {`{"name":"key_combination","args":{"keys":"Control + pagedown+x"}}`, `{"action":"key","text":"ctrl+Next+x"}`, ""},
		"a scroll":               {`{"name":"scroll_document","args":{"direction":"up"}}`, `{"action":"scroll","scroll_direction":"up","scroll_amount":3}`, ""},
		"a scroll at a place":    {`{"name":"scroll_at","args":{"x":0,"y":0,"direction":"down","magnitude":50}}`, `{"action":"scroll","coordinate":[0,0],"scroll_direction":"down","scroll_amount":1}`, ""},
		"a long scroll":          {`{"name":"scroll_at","args":{"x":0,"y":0,"direction":"down"}}`, `{"action":"scroll","coordinate":[0,0],"scroll_direction":"down","scroll_amount":8}`, ""},
		"a drag":                 {`{"name":"drag_and_drop","args":{"x":0,"y":0,"destination_x":1000,"destination_y":1000}}`, `{"action":"left_click_drag","start_coordinate":[0,0],"coordinate":[1365,767]}`, ""},
		"beyond the screen":      {`{"name":"hover_at","args":{"x":1e300,"y":-1}}`, `{"action":"mouse_move","coordinate":[1365,0]}`, ""},
		"a page":                 {`{"name":"navigate","args":{"url":"https://a.example"}}`, `{"action":"navigate","text":"https://a.example"}`, ""},
		"back":                   {`{"name":"go_back","args":{}}`, `{"action":"key","text":"alt+Left"}`, ""},
		"a search":               {`{"name":"search","args":{}}`, `{"action":"navigate","text":"https://www.google.com"}`, ""},
		"a wait":                 {`{"name":"wait_5_seconds"}`, `{"action":"wait","duration":5}`, `{"name":"wait_5_seconds","args":{}}`},
		"what needs an approval": {`{"name":"click_at","args":{"x":500,"y":250,"safety_decision":{"decision":"require_confirmation","explanation":"It accepts terms."}}}`, `{"action":"left_click","coordinate":[683,192]}`, ""},
	} {
		for _, streamed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				address, asked := conversing(t, `{"functionCall":`+tt.called+`},{"functionCall":{"name":"other","args":{"x":1}}}`)
				p := opened(t, "gemini-2.5-computer-use-preview-10-2025", address)
				r := &provider.Request{
					Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}, ToolChoice: chat.FunctionChoice("computer"),
					Tools: []*toolv1.ToolInfo{computerTool(whole), {Name: "other", Description: "d", ParametersJson: `{"type":"object","properties":{"x":{}}}`}},
				}
				var seen []string
				if streamed {
					r.Stream = func(d *modelv1.GenerateDelta) {
						seen = append(seen, d.GetToolCall().GetFunction()+d.GetToolCall().GetArguments())
					}
				}
				response, err := p.Generate(t.Context(), r)
				require.NoError(t, err)
				body := <-asked
				assert.JSONEq(t, `[{"computerUse":{"environment":"ENVIRONMENT_BROWSER"}},
					{"functionDeclarations":[{"name":"other","description":"d","parameters_json_schema":{"type":"object","properties":{"x":{}}}}]}]`, string(body["tools"]))
				assert.NotContains(t, body, "toolConfig")
				message := chat.FirstMessage(response.Output)
				calls := message.GetToolCalls()
				require.Len(t, calls, 2)
				assert.Equal(t, []string{"computer", "other"}, []string{calls[0].GetFunction(), calls[1].GetFunction()})
				assert.JSONEq(t, tt.action, calls[0].GetArgumentsJson())
				if name == "what needs an approval" {
					assert.Equal(t, "require_confirmation\nIt accepts terms.", calls[0].GetView().GetContent(), "who approves the call sees it")
				} else {
					assert.Nil(t, calls[0].GetView())
				}
				if streamed {
					assert.Equal(t, []string{"computer" + calls[0].GetArgumentsJson(), `other{"x":1}`}, seen)
				}

				result := &modelv1.ChatMessage{
					Role: modelv1.Role_ROLE_TOOL, Function: "computer", ToolCallIds: []string{calls[0].GetId()}, Content: chat.ListContent(chat.TextPart("done"), chat.ImagePart(button)),
				}
				r.Messages, r.Stream = append(r.Messages, message, result), nil
				_, err = p.Generate(t.Context(), r)
				require.NoError(t, err)
				var contents []struct{ Parts []map[string]json.RawMessage }
				require.NoError(t, json.Unmarshal((<-asked)["contents"], &contents))
				var call map[string]json.RawMessage
				require.NoError(t, json.Unmarshal(contents[1].Parts[0]["functionCall"], &call))
				delete(call, "id")
				again, err := json.Marshal(call)
				require.NoError(t, err)
				want := tt.back
				if want == "" {
					want = tt.called
				}
				assert.JSONEq(t, want, string(again))
				assert.JSONEq(t, `{"id":"`+calls[0].GetId()+`","name":`+string(call["name"])+`,"response":{"content":"done","safety_acknowledgement":"true","url":""},
					"parts":[{"inlineData":{"mime_type":"image/png","data":"AAAA"}}]}`, string(contents[2].Parts[0]["functionResponse"]))
				assert.Len(t, contents[2].Parts, 1)
			})
		}
	}
}

// Calls that another model made go as the nearest function of the server; a tool that takes something else is a
// function.
func TestAComputerOfAnotherModelAndAnotherComputer(t *testing.T) {
	t.Parallel()
	for action, want := range map[string]string{
		`{"action":"left_click","coordinate":[683,192]}`:                                      `{"name":"click_at","args":{"x":500,"y":250}}`,
		`{"action":"key","text":"ctrl+Next+x"}`:                                               `{"name":"key_combination","args":{"keys":"control+pagedown+x"}}`,
		`{"action":"type","text":"a","press_enter":true}`:                                     `{"name":"type_text_at","args":{"x":0,"y":0,"text":"a","press_enter":true}}`,
		`{"action":"scroll","coordinate":[0,0],"scroll_direction":"down","scroll_amount":20}`: `{"name":"scroll_at","args":{"x":0,"y":0,"direction":"down","magnitude":999}}`,
		`{"action":"scroll","scroll_direction":"up"}`:                                         `{"name":"scroll_document","args":{"direction":"up"}}`,
		`{"action":"left_click_drag","start_coordinate":[0,0],"coordinate":[1366,768]}`:       `{"name":"drag_and_drop","args":{"x":0,"y":0,"destination_x":1000,"destination_y":1000}}`,
		`{"action":"mouse_move","coordinate":[0,0]}`:                                          `{"name":"hover_at","args":{"x":0,"y":0}}`,
		`{"action":"navigate","text":"u"}`:                                                    `{"name":"navigate","args":{"url":"u"}}`,
		`{"action":"open_web_browser"}`:                                                       `{"name":"open_web_browser","args":{}}`,
		`{"action":"triple_click","coordinate":[1,1]}`:                                        `{"name":"wait_5_seconds","args":{}}`,
		`{"actions":[{"action":"screenshot"}]}`:                                               `{"name":"wait_5_seconds","args":{}}`,
		`not JSON at all`:                                                                     "",
	} {
		address, asked := conversing(t, `{"text":"x"}`)
		p := opened(t, "gemini-3-flash-preview", address)
		message := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_ASSISTANT, ToolCalls: []*toolv1.ToolCall{{Id: "c1", Function: "computer", ArgumentsJson: action}}}
		_, err := p.Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q"), message}, Config: &modelv1.GenerateConfig{}, Tools: []*toolv1.ToolInfo{computerTool(whole)},
		})
		if want == "" {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		var contents []struct {
			Parts []struct {
				Call map[string]json.RawMessage `json:"functionCall"`
			}
		}
		require.NoError(t, json.Unmarshal((<-asked)["contents"], &contents))
		call := contents[1].Parts[len(contents[1].Parts)-1].Call
		delete(call, "id")
		got, err := json.Marshal(call)
		require.NoError(t, err)
		assert.JSONEq(t, want, string(got), action)
	}
	for model, tool := range map[string]*toolv1.ToolInfo{"gemini-3-pro-preview": computerTool(whole), "gemini-3-flash-preview": computerTool("action")} {
		address, asked := conversing(t, `{"text":"x"}`)
		_, err := opened(t, model, address).Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}, Tools: []*toolv1.ToolInfo{tool},
		})
		require.NoError(t, err)
		assert.NotContains(t, string((<-asked)["tools"]), "computerUse", model)
	}
}
