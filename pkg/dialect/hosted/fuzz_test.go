package hosted_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// FuzzOffers checks that the tools of any client's request are offers that are read as they were written, or are
// refused as the client's fault.
func FuzzOffers(f *testing.F) {
	for _, request := range []string{
		`{"tools":[{"type":"web_search_20250305","name":"web_search","allowed_domains":["a.example"],"max_uses":1,
			"user_location":{"type":"approximate","city":"Oslo"}}]}`,
		`{"tools":[{"type":"web_fetch_20250910","name":"web_fetch"},{"type":"code_execution_20250825","name":"code_execution"}]}`,
		`{"tools":[{"type":"mcp_toolset","mcp_server_name":"m","default_config":{"enabled":false},"configs":{"a":null,"b":{"enabled":true}}}],
			"mcp_servers":[{"type":"url","name":"m","url":"https://m.example","authorization_token":"t"},
				{"type":"url","name":"n","url":"https://n.example","tool_configuration":{"enabled":true,"allowed_tools":["a"]}}]}`,
		`{"tools":[{"type":"web_search_preview","filters":{"allowed_domains":["a.example"]},"search_context_size":"low",
			"external_web_access":false}]}`,
		`{"tools":[{"type":"mcp","server_label":"l","server_url":"https://m.example","headers":{"a":"b"},"authorization":"t",
			"allowed_tools":{"tool_names":["x"]},"require_approval":"never"},
			{"type":"code_interpreter","container":{"type":"auto","file_ids":["x"]}}]}`,
		`{"web_search_options":{"search_context_size":"high","user_location":{"type":"approximate","approximate":{"country":"NO"}}}}`,
		`{"tools":[{"googleSearch":{"excludeDomains":["a.example"],"timeRangeFilter":{}},"codeExecution":{}},{"googleSearchRetrieval":{}}]}`,
	} {
		f.Add([]byte(request))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		if !utf8.Valid(request) {
			return // Requests are UTF-8.
		}
		checkOffers(t, offersOfAnthropic(t, request))
		checkOffers(t, offersOfGemini(t, request))
		tools := offersOfOpenAI(t, request)
		checkOffers(t, tools)
		for _, tool := range hosted.Distinct(tools) {
			kind, label := hosted.OpenAIChosen(tool.GetName(), tools)
			if chosen := hosted.OpenAIChoice(kind, label, tools); chosen != tool.GetName() {
				t.Fatalf("the choice of %s is that of %q", tool.GetName(), chosen)
			}
		}
	})
}

// toolsOf are the members tools of a request; none if it cannot be read.
func toolsOf(request []byte) []json.RawMessage {
	var r struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if json.Unmarshal(request, &r) != nil {
		return nil
	}
	return r.Tools
}

func offersOfAnthropic(t *testing.T, request []byte) []*toolv1.ToolInfo {
	t.Helper()
	var r struct {
		Servers json.RawMessage `json:"mcp_servers"`
	}
	_ = json.Unmarshal(request, &r) // What cannot be read is not there.
	offered, all, err := hosted.AnthropicOffers(toolsOf(request), r.Servers)
	requireRequestError(t, err)
	for _, tool := range offered {
		all = append(all, tool)
	}
	return all
}

func offersOfOpenAI(t *testing.T, request []byte) (all []*toolv1.ToolInfo) {
	t.Helper()
	var r struct {
		Search json.RawMessage `json:"web_search_options"`
	}
	if json.Unmarshal(request, &r) == nil && jsonread.IsSet(r.Search) {
		tool, err := hosted.ChatOffer(r.Search)
		requireRequestError(t, err)
		all = append(all, tool)
	}
	for _, raw := range toolsOf(request) {
		var head struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(raw, &head) == nil && hosted.IsOpenAIOffer(head.Type) {
			tool, err := hosted.OpenAIOffer(head.Type, raw, "tools[0]")
			requireRequestError(t, err)
			all = append(all, tool)
		}
	}
	return slices.DeleteFunc(all, func(tool *toolv1.ToolInfo) bool { return tool == nil })
}

func offersOfGemini(t *testing.T, request []byte) (all []*toolv1.ToolInfo) {
	t.Helper()
	for _, raw := range toolsOf(request) {
		var entry map[string]json.RawMessage
		if json.Unmarshal(raw, &entry) == nil {
			tools, err := hosted.GeminiOffers(entry, "tools[0]")
			requireRequestError(t, err)
			all = append(all, tools...)
		}
	}
	return all
}

// requireRequestError fails on an error that is not the fault of a client's request.
func requireRequestError(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*dialect.RequestError](err); err != nil && !ok {
		t.Fatalf("%v is no *dialect.RequestError", err)
	}
}

// checkOffers checks that tools are offers with options and parameters that are JSON, that what an answer repeats of
// them has no secrets, and that each name is there once after Distinct.
func checkOffers(t *testing.T, tools []*toolv1.ToolInfo) {
	t.Helper()
	for _, tool := range tools {
		offer, ok := hosted.Of(tool)
		kinds := []string{hosted.WebSearch, hosted.CodeExecution, hosted.MCPServer, hosted.WebFetch}
		if !ok || !slices.Contains(kinds, offer.Kind) {
			t.Fatalf("%v is no offer", tool)
		}
		requireObject(t, tool.GetOptionsJson())
		requireObject(t, tool.GetParametersJson())
		var given map[string]json.RawMessage
		if offer.Given != nil && json.Unmarshal(offer.Given, &given) != nil || given["headers"] != nil || given["authorization"] != nil {
			t.Fatalf("an answer would repeat %s", offer.Given)
		}
	}
	distinct := hosted.Distinct(tools)
	names := map[string]bool{}
	for _, tool := range distinct {
		names[tool.GetName()] = true
	}
	if len(names) != len(distinct) || len(names) == 0 && len(tools) > 0 {
		t.Fatalf("%v became %v", tools, distinct)
	}
}

// FuzzUses checks that what a tool did, in the two documents that a vendor reports it in or in any words, is written as
// JSON in the form of each vendor, and that what was written and read is the same when it is written and read again.
func FuzzUses(f *testing.F) {
	for _, seed := range [][2]string{
		{
			`{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q"}}`,
			`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[
				{"type":"web_search_result","url":"https://a.example","title":"A","encrypted_content":"E"}]}`,
		},
		{
			`{"type":"server_tool_use","id":"srvtoolu_2","name":"bash_code_execution","input":{"command":"ls"}}`,
			`{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_2","content":{
				"type":"bash_code_execution_result","stdout":"1","stderr":"2","return_code":0}}`,
		},
		{
			`{"type":"mcp_tool_use","id":"mcptoolu_3","name":"look","server_name":"s","input":{"a":1}}`,
			`{"type":"mcp_tool_result","tool_use_id":"mcptoolu_3","is_error":true,"content":[{"type":"text","text":"t"}]}`,
		},
		{
			`{"type":"web_search_call","id":"ws_1","status":"completed","action":{
				"type":"search","query":"q","sources":[{"type":"url","url":"https://a.example"}]}}`,
			`{"type":"code_interpreter_call","id":"ci_1","code":"1","container_id":"evalfleet:elsewhere",
				"outputs":[{"type":"logs","logs":"1"},{"type":"image","url":"u"}]}`,
		},
		{
			`{"type":"mcp_call","id":"mcp_1","name":"look","server_label":"s","arguments":"{}","output":"o",
				"error":{"content":[{"type":"text","text":"no"}]}}`,
			`{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[{"name":"look","input_schema":{},"description":""}]}`,
		},
		{`{"query":"q","queries":["q","r"]}`, `[{"url":"https://a.example","title":"A"}]`},
		{`{"type":"open_page","url":"https://a.example"}`, `print(1)`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if !utf8.Valid(first) || !utf8.Valid(second) {
			return // The canonical form is UTF-8.
		}
		for _, use := range usesOf(first, second) {
			checkRead(t, use)
			checkOpenAI(t, use)
			checkAnthropic(t, use)
		}
		for _, document := range [][]byte{first, second} {
			if json.Valid(document) {
				checkReopened(t, hosted.ReopenOpenAI, document)
				checkReopened(t, hosted.ReopenAnthropic, document)
			}
		}
	})
}

// usesOf are the uses of tools that two documents may be.
func usesOf(first, second []byte) []*contentv1.ToolUse {
	var all []*contentv1.ToolUse
	if json.Valid(first) && json.Valid(second) {
		all = append(all, hosted.AnthropicUse(first, second).GetToolUse())
	}
	for _, kind := range []string{hosted.OpenAISearch, hosted.OpenAICode, hosted.OpenAIMCP, hosted.OpenAIList} {
		for _, item := range [][]byte{first, second} {
			if use, err := hosted.OpenAIUse(kind, item); err == nil {
				all = append(all, use)
			}
		}
	}
	for kind := range contentv1.ToolUseType_name {
		use := &contentv1.ToolUse{
			ToolType: contentv1.ToolUseType(kind), Id: "1", Name: "look", Context: new("s"), Arguments: string(first), Result: string(second),
		}
		failed := proto.CloneOf(use)
		failed.Error = new(string(second))
		all = append(all, use, failed)
	}
	return all
}

// checkRead checks that a use can be read, and that each page that a search found has an address.
func checkRead(t *testing.T, use *contentv1.ToolUse) {
	t.Helper()
	said := []string{hosted.Query(use), hosted.Code(use), hosted.Output(use), hosted.OpenAICodeText(use).GetText().GetText()}
	for _, text := range said {
		if !utf8.ValidString(text) {
			t.Fatalf("%q is no text", text)
		}
	}
	for _, page := range hosted.Sources(use) {
		if page.URL == "" {
			t.Fatal("a page has no address")
		}
	}
}

// checkOpenAI checks a use as OpenAI and its clients get it. A list of a server's tools has no item.
func checkOpenAI(t *testing.T, use *contentv1.ToolUse) {
	t.Helper()
	if hosted.OpenAIType(use) == hosted.OpenAIList {
		if item := hosted.OpenAIItem(use, "completed"); item != "" {
			t.Fatalf("a list became %s", item)
		}
		return
	}
	w := &jsonwrite.Writer{}
	hosted.WriteOpenAI(w, use)
	requireObject(t, w.String())
	requireObject(t, hosted.OpenAIBegun(use))
	for _, event := range hosted.OpenAIEvents(use) {
		if event.Name == "" || event.Member == "" && event.Text != "" {
			t.Fatalf("%v is no event", event)
		}
	}
	once := throughOpenAI(t, use)
	again := throughOpenAI(t, once)
	if again.Error != nil || jsonread.IsList(once.GetResult()) || hosted.IsAnthropicResult(once.GetResult()) {
		// The words of a failure may become fewer, and a text that looks like blocks becomes their texts.
		once.Result, once.Error, again.Result, again.Error = "", nil, "", nil
	}
	if !proto.Equal(once, again) {
		t.Fatalf("%v became %v", once, again)
	}
}

// throughOpenAI is a use after its item was written and read.
func throughOpenAI(t *testing.T, use *contentv1.ToolUse) *contentv1.ToolUse {
	t.Helper()
	item := hosted.OpenAIItem(use, "completed")
	requireObject(t, item)
	read, err := hosted.OpenAIUse(hosted.OpenAIType(use), []byte(item))
	if err != nil || hosted.OpenAIType(read) != hosted.OpenAIType(use) || read.GetId() != hosted.OpenAIID(use) {
		t.Fatalf("%v became %v, %v", use, read, err)
	}
	return read
}

// checkAnthropic checks a use as Anthropic and its clients get it.
func checkAnthropic(t *testing.T, use *contentv1.ToolUse) {
	t.Helper()
	anthropicBlocks(t, use)
	own := hosted.ForAnthropic(use)
	if own == nil {
		if use.GetName() != hosted.OpenAIList {
			t.Fatalf("%v has no place", use)
		}
		return
	}
	read := hosted.AnthropicUse(anthropicBlocks(t, own)).GetToolUse()
	switch search := use.GetToolType() == contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH; {
	case search && use.Error == nil && len(hosted.Sources(use)) > 0 && !hosted.Sealed(use):
		if !proto.Equal(use, read) {
			t.Fatalf("the search %v became %v", use, read)
		}
	case read.GetId() != own.GetId():
		t.Fatalf("%v became %v", own, read)
	}
}

// anthropicBlocks are the blocks of a use.
func anthropicBlocks(t *testing.T, use *contentv1.ToolUse) (call, result []byte) {
	t.Helper()
	w := &jsonwrite.Writer{}
	w.BeginObject()
	hosted.WriteAnthropicCall(w, use)
	w.EndObject()
	requireObject(t, w.String())
	if result = []byte(use.GetResult()); !hosted.IsAnthropicResult(use.GetResult()) {
		block := &jsonwrite.Writer{}
		block.BeginObject()
		hosted.WriteAnthropicResult(block, use)
		block.EndObject()
		result = block.Bytes()
	}
	requireObject(t, string(result))
	return w.Bytes(), result
}

// checkReopened checks that a document is JSON after it was reopened, and is reopened once.
func checkReopened(t *testing.T, reopen func([]byte) []byte, document []byte) {
	t.Helper()
	reopened := reopen(document)
	if !json.Valid(reopened) || string(reopen(reopened)) != string(reopened) {
		t.Fatalf("%s became %s", document, reopened)
	}
}

func requireObject(t *testing.T, document string) {
	t.Helper()
	if !jsonread.IsObject(document) {
		t.Fatalf("%q is no JSON object", document)
	}
}
