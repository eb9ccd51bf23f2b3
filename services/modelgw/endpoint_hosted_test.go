package modelgw_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// Answers of vendors in which their own search was used.
const (
	claudeSearched = `{"id":"m1","type":"message","role":"assistant","model":"claude","stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2},"content":[
		{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"news"}},
		{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://n.example","title":"News","encrypted_content":"SEALED","page_age":null}]},
		{"type":"text","text":"It rains.","citations":[{"type":"web_search_result_location","cited_text":"rain","title":"News","url":"https://n.example","encrypted_index":"IDX"}]}]}`
	gptSearched = `{"id":"resp_1","object":"response","status":"completed","model":"gpt","usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5},"output":[
		{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"news","sources":[{"type":"url","url":"https://n.example"}]}},
		{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"It rains.","annotations":[
			{"type":"url_citation","url":"https://n.example","title":"News","start_index":0,"end_index":9}]}]}]}`
	geminiSearched = `{"candidates":[{"content":{"role":"model","parts":[{"text":"It rains."}]},"finishReason":"STOP","groundingMetadata":{"webSearchQueries":["news"],
		"groundingChunks":[{"web":{"uri":"https://n.example","title":"News"}}],"groundingSupports":[{"segment":{"endIndex":9,"text":"It rains."},"groundingChunkIndices":[0]}]}}],
		"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"totalTokenCount":5}}`
)

// serveSearchers serves the endpoints of a gateway whose vendors search.
func serveSearchers(t *testing.T) (g *web, claude, gpt, gemini *vendor) {
	t.Helper()
	claude = vendorWith(t, says(http.StatusOK, "application/json", claudeSearched))
	gpt = vendorWith(t, says(http.StatusOK, "application/json", gptSearched))
	gemini = vendorWith(t, says(http.StatusOK, "application/json", geminiSearched))
	return serveWeb(t, gpt, throughResponses, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), claude.URL
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), gemini.URL
		c.Endpoints.MaxRetries = 0
	}), claude, gpt, gemini
}

// toolsOf are the tools of a request that a vendor got, each as JSON.
func toolsOf(t *testing.T, v *vendor) (tools []string, body string) {
	t.Helper()
	body = string(waittest.For(t, v.body, "the body that reaches the vendor"))
	var sent struct{ Tools []json.RawMessage }
	unmarshal(t, body, &sent)
	for _, tool := range sent.Tools {
		tools = append(tools, string(tool))
	}
	return tools, body
}

// A client of the Responses API that searches gets Claude's search, and what that found goes back to Claude.
func TestASearchOfTheResponsesAPIIsClaudes(t *testing.T) {
	t.Parallel()
	g, claude, gpt, _ := serveSearchers(t)
	const tools = `"tools":[{"type":"web_search","filters":{"allowed_domains":["n.example"]},"user_location":{"type":"approximate","country":"NO"}},{"type":"function","name":"f"}]`
	question := `{"role":"user","content":"Weather?"}`
	ask := func(model, input string) string {
		return read(t, g.post(t, responsesPath, `{"model":"`+model+`",`+tools+`,"input":[`+input+`]}`))
	}
	answer := ask(claudeModel, question)
	offered, _ := toolsOf(t, claude)
	require.Len(t, offered, 3, "Claude's search comes with what reads pages")
	assert.JSONEq(t, `{"name":"web_search","type":"web_search_20250305","allowed_domains":["n.example"],"user_location":{"type":"approximate","country":"NO"}}`, offered[1])

	var said struct {
		Output []json.RawMessage
		Tools  []json.RawMessage
	}
	unmarshal(t, answer, &said)
	require.Len(t, said.Output, 3, answer)
	assert.JSONEq(t, `{"id":"ws_srvtoolu_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"news","sources":[{"type":"url","url":"https://n.example"}]}}`, string(said.Output[1]))
	assert.Contains(t, string(said.Output[2]), `"annotations":[{"type":"url_citation","start_index":0,"end_index":9,"url":"https://n.example","title":"News"}]`)
	assert.Contains(t, string(said.Tools[0]), `"type":"web_search"`)

	history := question
	for _, item := range said.Output {
		history += "," + string(item)
	}
	ask(claudeModel, history+`,{"role":"user","content":"Sure?"}`)
	_, body := toolsOf(t, claude)
	assert.Contains(t, body, `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{`)
	assert.Contains(t, body, `"encrypted_content":"SEALED"`, "what was found goes back sealed")

	ask(gptModel, history+`,{"role":"user","content":"Sure?"}`)
	_, body = toolsOf(t, gpt)
	assert.NotContains(t, body, "evalfleet:", "another vendor's seal stays here")
	assert.Contains(t, body, `"query":"news"`)
}

// A client of Anthropic's that searches gets the search of the model's vendor.
func TestASearchOfAnthropicsIsTheModelsVendors(t *testing.T) {
	t.Parallel()
	g, claude, gpt, gemini := serveSearchers(t)
	const tools = `"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2}]`
	question := `{"role":"user","content":"Weather?"}`
	ask := func(model, messages string) string {
		return read(t, g.post(t, messagesPath, `{"model":"`+model+`","max_tokens":99,`+tools+`,"messages":[`+messages+`]}`))
	}
	answer := ask(gptModel, question)
	offered, body := toolsOf(t, gpt)
	assert.Equal(t, []string{`{"type":"web_search"}`}, offered)
	assert.Contains(t, body, `"web_search_call.action.sources"`)
	var said struct{ Content []json.RawMessage }
	unmarshal(t, answer, &said)
	require.Len(t, said.Content, 3, answer)
	assert.JSONEq(t, `{"type":"server_tool_use","id":"srvtoolu_ws_1","name":"web_search","input":{"type":"search","query":"news"}}`, string(said.Content[0]))
	assert.Contains(t, string(said.Content[1]), `"tool_use_id":"srvtoolu_ws_1","content":[{"type":"web_search_result","url":"https://n.example"`)
	assert.Contains(t, string(said.Content[2]), `"type":"web_search_result_location"`)

	content, err := json.Marshal(said.Content)
	require.NoError(t, err)
	history := question + `,{"role":"assistant","content":` + string(content) + `},{"role":"user","content":"Sure?"}`
	ask(gptModel, history)
	_, body = toolsOf(t, gpt)
	assert.Contains(t, body, `{"type":"web_search_call","id":"ws_1","action":{"type":"search","query":"news",`, "as it was, with its own id")

	ask(claudeModel, history)
	_, body = toolsOf(t, claude)
	assert.NotContains(t, body, "evalfleet:", "Claude would refuse what another vendor found")
	assert.Contains(t, body, `"tool_use_id":"srvtoolu_ws_1","content":{"type":"web_search_tool_result_error","error_code":"unavailable"}`)

	answer = ask(geminiModel, question)
	offered, _ = toolsOf(t, gemini)
	assert.Equal(t, []string{`{"googleSearch":{}}`}, offered)
	assert.Contains(t, answer, `"input":{"query":"news"}`)
	assert.Contains(t, answer, `"url":"https://n.example","title":"News"`)
}

// A client of chat completions that asks for a search gets the one of the model's vendor, and what it cites.
func TestASearchOfChatCompletionsIsTheModelsVendors(t *testing.T) {
	t.Parallel()
	g, claude, _, _ := serveSearchers(t)
	for _, stream := range []string{"false", "true"} {
		answer := read(t, g.post(t, "/v1/chat/completions", `{"model":"`+claudeModel+`","stream":`+stream+`,"messages":[{"role":"user","content":"q"}],
			"web_search_options":{"user_location":{"type":"approximate","approximate":{"country":"NO"}}}}`))
		offered, _ := toolsOf(t, claude)
		assert.Contains(t, strings.Join(offered, ""), `"user_location":{"type":"approximate","country":"NO"}`)
		assert.Contains(t, answer, `"annotations":[{"type":"url_citation","url_citation":{"start_index":0,"end_index":9,"url":"https://n.example","title":"News"}}]`)
	}
}

// A client of Gemini's API is told of a search in the grounding of the answer.
func TestASearchOfGeminisIsTheModelsVendors(t *testing.T) {
	t.Parallel()
	g, claude, gpt, _ := serveSearchers(t)
	const body = `{"contents":[{"role":"user","parts":[{"text":"Weather?"}]}],"tools":[{"google_search":{}}]}`
	for model, v := range map[string]*vendor{claudeModel: claude, gptModel: gpt} {
		answer := read(t, g.post(t, "/v1beta/models/"+model+":generateContent", body))
		offered, _ := toolsOf(t, v)
		assert.Contains(t, strings.Join(offered, ""), `web_search`, model)
		var said struct {
			Candidates []struct {
				Grounding json.RawMessage `json:"groundingMetadata"`
			}
		}
		unmarshal(t, answer, &said)
		assert.JSONEq(t, `{"webSearchQueries":["news"],"groundingChunks":[{"web":{"uri":"https://n.example","title":`+titleOf(model)+`}}],
			"groundingSupports":[{"segment":{"startIndex":0,"endIndex":9,"text":"It rains."},"groundingChunkIndices":[0]}]}`, string(said.Candidates[0].Grounding), model)
	}
}

// titleOf is what a vendor says of the title of a page that its search found.
func titleOf(model string) string {
	if model == gptModel {
		return `""`
	}
	return `"News"`
}

// Where the model's vendor does not run a tool, the offer is as if it had not been made, or is refused by its name.
func TestWhatAVendorDoesNotRunIsLeftOutOrRefused(t *testing.T) {
	t.Parallel()
	g, claude, gpt, gemini := serveSearchers(t)
	for name, tt := range map[string]struct{ path, body, param string }{
		"a model that runs none": {messagesPath, `{"model":"mockllm/m","max_tokens":9,"messages":[{"role":"user","content":"q"}],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, "tools.0: "},
		"a choice":               {responsesPath, `{"model":"mockllm/m","input":"q","tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search_preview"}}`, "tool_choice"},
		"any call":               {responsesPath, `{"model":"mockllm/m","input":"q","tools":[{"type":"web_search"}],"tool_choice":"required"}`, "tool_choice"},
		"domains": {messagesPath, `{"model":"` + gptModel + `","max_tokens":9,"messages":[{"role":"user","content":"q"}],
			"tools":[{"type":"web_search_20250305","name":"web_search","blocked_domains":["a.example"]}]}`, "tools.0.blocked_domains: "},
		"chat completions": {"/v1/chat/completions", `{"model":"mockllm/m","messages":[{"role":"user","content":"q"}],"web_search_options":{}}`, "web_search_options"},
		"kept files":       {responsesPath, `{"model":"` + claudeModel + `","input":"q","tools":[{"type":"code_interpreter","container":"cntr_1"}]}`, "tools[0].container"},
	} {
		answer := g.post(t, tt.path, tt.body)
		assert.Equal(t, http.StatusBadRequest, answer.StatusCode, name)
		assert.Contains(t, read(t, answer), tt.param, name)
	}
	assert.Empty(t, claude.body)
	assert.Empty(t, gpt.body)
	// Gemini 2.5 takes functions or its own tools, so that a client that offers both gets its functions.
	read(t, g.post(t, responsesPath, `{"model":"google/gemini-2.5-flash","input":"q","tools":[{"type":"web_search"},{"type":"function","name":"f"}]}`))
	_, body := toolsOf(t, gemini)
	assert.NotContains(t, strings.ToLower(body), "search")
	assert.Contains(t, body, `"f"`)
}

// A conversation in which a vendor searched goes on with a model whose API has no place for that.
func TestASearchIsNoHindranceToAnotherModel(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Mistral.APIKey, c.Mistral.BaseURL, c.Mistral.ConversationAPI = config.NewSecret("k"), v.URL, new(false)
	})
	answer := g.post(t, responsesPath, `{"model":"mistral/mistral-small","input":[{"role":"user","content":"q"},
		{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"news"}},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Rain."}]},{"role":"user","content":"r"}]}`)
	require.Equal(t, http.StatusOK, answer.StatusCode, read(t, answer))
	_, body := toolsOf(t, v)
	assert.Contains(t, body, "Rain.")
	assert.NotContains(t, body, "news")
}

// Servers of tools and interpreters go to the vendor of the model as well.
func TestServersOfToolsAndInterpretersAreTheModelsVendors(t *testing.T) {
	t.Parallel()
	g, claude, gpt, gemini := serveSearchers(t)
	read(t, g.post(t, responsesPath, `{"model":"`+claudeModel+`","input":"q","tools":[{"type":"code_interpreter","container":{"type":"auto"}},
		{"type":"mcp","server_label":"docs","server_url":"https://m.example","authorization":"tok","allowed_tools":["look"],"require_approval":"never"},
		{"type":"mcp","server_label":"asks","server_url":"https://a.example"}]}`))
	_, body := toolsOf(t, claude)
	assert.Contains(t, body, `{"type":"code_execution_20250825","name":"code_execution",`)
	assert.Contains(t, body, `"mcp_servers":[{"type":"url","name":"docs","url":"https://m.example","authorization_token":"tok","tool_configuration":{"enabled":true,"allowed_tools":["look"]}}]`)
	assert.NotContains(t, body, "a.example", "nobody could approve its calls")

	read(t, g.post(t, messagesPath, `{"model":"`+gptModel+`","max_tokens":9,"messages":[{"role":"user","content":"q"}],"tools":[{"type":"code_execution_20250825","name":"code_execution"},
		{"type":"mcp_toolset","mcp_server_name":"docs","default_config":{"enabled":false},"configs":{"look":{"enabled":true}}}],
		"mcp_servers":[{"type":"url","name":"docs","url":"https://m.example","authorization_token":"tok"}]}`))
	offered, _ := toolsOf(t, gpt)
	require.Len(t, offered, 2)
	assert.JSONEq(t, `{"type":"code_interpreter","container":{"type":"auto"}}`, offered[0])
	assert.JSONEq(t, `{"type":"mcp","server_label":"docs","server_url":"https://m.example","headers":{"Authorization":"Bearer tok"},"allowed_tools":["look"],"require_approval":"never"}`, offered[1])

	read(t, g.post(t, messagesPath, `{"model":"`+geminiModel+`","max_tokens":9,"messages":[{"role":"user","content":"q"}],"tools":[{"type":"code_execution_20250825","name":"code_execution"}]}`))
	offered, _ = toolsOf(t, gemini)
	assert.Equal(t, []string{`{"codeExecution":{}}`}, offered)
}

// A client's own tool may be called as servers of tools are.
func TestATextToolNamedLikeAServerIsTheClients(t *testing.T) {
	t.Parallel()
	g, claude, _, _ := serveSearchers(t)
	answer := g.post(t, responsesPath, `{"model":"`+claudeModel+`","input":"q","tools":[{"type":"custom","name":"mcp_server_a"}]}`)
	assert.Equal(t, http.StatusOK, answer.StatusCode, read(t, answer))
	offered, _ := toolsOf(t, claude)
	require.Len(t, offered, 1)
	assert.Contains(t, offered[0], `"name":"mcp_server_a","input_schema"`)
}

// A credential that is not the operator's, such as that of a run, does not let its holder out of a sandbox by a
// vendor's tools, in either lane.
func TestToolsOfVendorsAreWithheldFromOthersThanTheOperator(t *testing.T) {
	t.Parallel()
	g, claude, gpt, gemini := serveSearchers(t)
	const search = `{"type":"web_search_20250305","name":"web_search"}`
	for name, tt := range map[string]struct {
		v          *vendor
		path, body string
	}{
		"Claude":               {claude, messagesPath, `{"model":"` + claudeModel + `","max_tokens":9,"messages":[{"role":"user","content":"q"}],"tools":[` + search + `]}`},
		"Claude's servers":     {claude, messagesPath, `{"model":"` + claudeModel + `","max_tokens":9,"messages":[{"role":"user","content":"q"}],"mcp_servers":[{"type":"url","name":"m","url":"https://m.example"}]}`},
		"Claude, forced":       {claude, messagesPath, `{"model":"` + claudeModel + `","max_tokens":9,"messages":[{"role":"user","content":"q"}],"tools":[` + search + `],"tool_choice":{"type":"tool","name":"web_search"}}`},
		"OpenAI":               {gpt, responsesPath, `{"model":"` + gptModel + `","input":"q","tools":[{"type":"web_search"},{"type":"code_interpreter","container":{"type":"auto"}}]}`},
		"OpenAI, chat":         {gpt, "/v1/chat/completions", `{"model":"` + gptModel + `","messages":[{"role":"user","content":"q"}],"web_search_options":{}}`},
		"OpenAI, an item":      {gpt, responsesPath, `{"model":"` + gptModel + `","input":[{"type":"\u0061dditional_tools","role":"developer","tools":[{"type":"web_search"}]},{"role":"user","content":"q"}]}`},
		"OpenAI, a namespace":  {gpt, responsesPath, `{"model":"` + gptModel + `","input":"q","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]}`},
		"OpenAI, found tools":  {gpt, responsesPath, `{"model":"` + gptModel + `","input":[{"role":"user","content":"q"},{"type":"tool_search_output","call_id":"c","tools":[{"type":"mcp","server_label":"m","server_url":"https://m.example"}]}]}`},
		"OpenAI, plugins":      {gpt, responsesPath, `{"model":"` + gptModel + `","input":"q","plugins":[{"id":"web_search"}],"search_parameters":{"mode":"on"}}`},
		"OpenAI, other case":   {gpt, responsesPath, `{"model":"` + gptModel + `","input":"q","Tools":[{"type":"web_search"}]}`},
		"Claude, other case":   {claude, messagesPath, `{"model":"` + claudeModel + `","max_tokens":9,"messages":[{"role":"user","content":"q"}],"MCP_SERVERS":[{"type":"url","name":"m","url":"https://m.example"}]}`},
		"OpenAI for Anthropic": {gpt, messagesPath, `{"model":"` + gptModel + `","max_tokens":9,"messages":[{"role":"user","content":"q"}],"tools":[` + search + `]}`},
		"Google":               {gemini, "/v1beta/models/" + geminiModel + ":generateContent", `{"contents":[{"role":"user","parts":[{"text":"q"}]}],"tools":[{"google_search":{}},{"codeExecution":{}},{"urlContext":{}}]}`},
	} {
		answer := g.post(t, tt.path, tt.body, "Authorization", "Bearer of-a-run")
		assert.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", name, read(t, answer))
		offered, body := toolsOf(t, tt.v)
		assert.Empty(t, offered, name)
		for _, granted := range []string{"m.example", "earch", "codeExecution", "tool_choice"} {
			assert.NotContains(t, body, granted, name)
		}
	}
	// What is no list of items cannot be told.
	answer := g.post(t, responsesPath, `{"model":"`+gptModel+`","input":{"type":"additional_tools","tools":[{"type":"web_search"}]}}`, "Authorization", "Bearer of-a-run")
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode, read(t, answer))
	assert.Empty(t, gpt.body)
	// What offers none goes through as bytes, as ever.
	found := `{"model":"` + gptModel + `","input":[{"type":"tool_search_output","tools":[{"type":"function","name":"f"}]},{"role":"user","content":"q"}], "store":false}`
	read(t, g.post(t, responsesPath, found, "Authorization", "Bearer of-a-run"))
	assert.Equal(t, strings.Replace(found, "openai/", "", 1), string(waittest.For(t, gpt.body, "the body that reaches the vendor")))
	plain := `{"model":"` + claudeModel + `", "max_tokens":9,"messages":[],"tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124","name":"bash"}],"new":1.0}`
	read(t, g.post(t, messagesPath, plain, "Authorization", "Bearer of-a-run"))
	assert.Equal(t, strings.Replace(plain, "anthropic/", "", 1), string(waittest.For(t, claude.body, "the body that reaches the vendor")))
}
