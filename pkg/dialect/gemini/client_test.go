package gemini_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// decode reads an answer of the vendor.
func decode(t *testing.T, body string) *modelv1.ModelOutput {
	t.Helper()
	response, err := gemini.Codec{}.DecodeResponse([]byte(body))
	require.NoError(t, err)
	output, err := response.Output(nil)
	require.NoError(t, err)
	return output
}

// answered is an answer with these parts.
func answered(parts string) string {
	return `{"candidates":[{"content":{"parts":` + parts + `},"finishReason":"STOP"}]}`
}

// encode returns the body of a request with messages and nothing else.
func encode(t *testing.T, messages ...*modelv1.ChatMessage) string {
	t.Helper()
	body, err := gemini.Codec{}.AppendRequest(nil, &dialect.Request{Messages: messages})
	require.NoError(t, err)
	return string(body)
}

func TestARequestHasOneOrderAndKeepsJSONOfOthers(t *testing.T) {
	t.Parallel()
	r := &gemini.Request{
		Request: dialect.Request{
			Messages: []*modelv1.ChatMessage{
				chat.System("s"), chat.User("u"), chat.Assistant("", chat.Call("c1", "f", `{"z": 1.0, "a": 123456789012345678901234567890}`)),
				chat.ToolMessage(&toolv1.ToolResult{CallId: "c1", Function: "f", Content: chat.TextContent("r")}),
			},
			Tools:  []*toolv1.ToolInfo{{Name: "f", Description: "d", ParametersJson: `{"type": "object", "x-own": 1.0}`}, {Name: "g", ParametersJson: `{"type":"object","properties":{}}`}},
			Choice: chat.FunctionChoice("f"),
			Config: &modelv1.GenerateConfig{
				Temperature: new(0.0), TopK: new(int32(40)), TopLogprobs: new(int32(2)), Logprobs: new(true), ResponseSchema: &modelv1.ResponseSchema{Name: "n", JsonSchema: `{"type": "string"}`},
			},
			Members: []dialect.Member{{Name: "labels", JSON: `{"a": 1}`}, {Name: "mediaResolution", JSON: `"LOW"`}},
		},
		Thinking: &gemini.Thinking{Include: true, Budget: new(int64(7))},
		Safety:   []gemini.SafetySetting{{Category: "C", Threshold: "T"}},
	}
	body, err := r.Append(nil)
	require.NoError(t, err)
	assert.Equal(t, `{"contents":[{"role":"user","parts":[{"text":"u"}]},{"role":"model","parts":[{"text":"(no content)"},`+
		`{"functionCall":{"id":"c1","name":"f","args":{"z": 1.0, "a": 123456789012345678901234567890}}}]},`+
		`{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"f","response":{"output":"r"}}}]}],"systemInstruction":{"role":"user","parts":[{"text":"s"}]},`+
		`"safetySettings":[{"category":"C","threshold":"T"}],"tools":[{"functionDeclarations":[{"name":"f","description":"d","parameters_json_schema":{"type": "object", "x-own": 1.0}},`+
		`{"name":"g","description":""}]}],"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}},"generationConfig":{"temperature":0,"topK":40,`+
		`"responseLogprobs":true,"logprobs":2,"responseMimeType":"application/json","responseJsonSchema":{"type": "string"},`+
		`"thinkingConfig":{"include_thoughts":true,"thinking_budget":7},"mediaResolution":"LOW"},"labels":{"a": 1}}`, string(body))
}

// The API refuses a budget beside a level.
func TestThinkingHasABudgetOrALevel(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]*modelv1.GenerateConfig{
		`{"include_thoughts":true,"thinking_budget":9}`:    {ReasoningEffort: new("low"), ReasoningTokens: new(int64(9))},
		`{"include_thoughts":true,"thinking_level":"LOW"}`: {ReasoningEffort: new("low")},
		`{"include_thoughts":false,"thinking_budget":0}`:   {ReasoningEffort: new("none"), ReasoningTokens: new(int64(9))},
	} {
		body, err := gemini.Codec{}.AppendRequest(nil, &dialect.Request{Config: c})
		require.NoError(t, err)
		assert.Contains(t, string(body), `"thinkingConfig":`+want+`}`)
	}
}

// Media of all kinds are within the request, and images in the result of a call too.
func TestMediaAreWithinTheRequest(t *testing.T) {
	t.Parallel()
	messages, err := chat.ParseMessages([]byte(`[{"role":"user","content":[{"type":"image","image":"data:image/png;base64,AAAA"},{"type":"audio","audio":"data:audio/mpeg;base64,AAAA","format":"mp3"},
		{"type":"video","video":"data:video/mp4;base64,AAAA","format":"mp4"},{"type":"video","video":"data:video/mpeg;base64,AAAA","format":"mpeg"},
		{"type":"video","video":"data:video/quicktime;base64,AAAA","format":"mov"},{"type":"document","document":"data:application/pdf;base64,AAAA","filename":"a.pdf"}]}]`))
	require.NoError(t, err)
	body := encode(t, messages...)
	for _, kind := range []string{"image/png", "audio/mpeg", "video/mp4", "video/mpeg", "video/quicktime", "application/pdf"} {
		assert.Contains(t, body, `{"inlineData":{"mime_type":"`+kind+`","data":"AAAA"}}`)
	}
	r, err := gemini.Codec{}.ParseRequest([]byte(body))
	require.NoError(t, err)
	for i, part := range r.Messages[0].GetContent().GetList().GetParts() {
		assert.IsType(t, messages[0].GetContent().GetList().GetParts()[i].GetPart(), part.GetPart(), "each is of its kind")
	}
	for name, document := range map[string]string{
		"far media":   `[{"role":"user","content":[{"type":"image","image":"https://x.example/a.png"}]}]`,
		"reasoning":   `[{"role":"user","content":[{"type":"reasoning","reasoning":"r"}]}]`,
		"other data":  `[{"role":"assistant","content":[{"type":"data","data":{"a":1}}]}]`,
		"tool's data": `[{"role":"tool","tool_call_id":"c","content":[{"type":"data","data":{"a":1}}]}]`,
	} {
		messages, err := chat.ParseMessages([]byte(document))
		require.NoError(t, err)
		_, err = gemini.Codec{}.AppendRequest(nil, &dialect.Request{Messages: messages})
		var unsupported *dialect.UnsupportedError
		require.ErrorAs(t, err, &unsupported, name)
	}
}

// The server has its signatures back on the parts that they were on.
func TestSignaturesReturnToTheirParts(t *testing.T) {
	t.Parallel()
	for name, parts := range map[string]string{
		"a text":                     `[{"text":"a","thoughtSignature":"czE="}]`,
		"a call":                     `[{"functionCall":{"id":"c","name":"f","args":{"b": 1}},"thoughtSignature":"czE="}]`,
		"the first of several calls": `[{"text":"a"},{"functionCall":{"id":"c","name":"f","args":{}},"thoughtSignature":"czE="},{"functionCall":{"id":"d","name":"f","args":{}}}]`,
		"calls among texts":          `[{"functionCall":{"id":"c","name":"f","args":{}}},{"text":"a","thoughtSignature":"czE="},{"functionCall":{"id":"d","name":"f","args":{}},"thoughtSignature":"czI="}]`,
		"a picture":                  `[{"text":"a"},{"inlineData":{"mime_type":"image/png","data":"aGk="},"thoughtSignature":"czE="}]`,
		"code":                       `[{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"czE="},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":""}}]`,
		"code without a result":      `[{"text":"a"},{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"czE="},{"executableCode":{"language":"PYTHON","code":"2"}},{"text":"b"}]`,
		"no part at the end":         `[{"text":"a"},{"text":"","thoughtSignature":"czE="}]`,
		"a thought and a call":       `[{"text":"hm","thought":true},{"functionCall":{"id":"c","name":"f","args":{}},"thoughtSignature":"czE="}]`,
	} {
		output := decode(t, answered(strings.ReplaceAll(parts, "mime_type", "mimeType")))
		assert.Equal(t, `{"contents":[{"role":"model","parts":`+parts+`}],"generationConfig":{}}`, encode(t, chat.FirstMessage(output)), name)
	}
	output := decode(t, answered(`[{"text":"hm","thought":true},{"text":"a","thoughtSignature":"czE="}]`))
	sealed := chat.FirstMessage(output).GetContent().GetList().GetParts()[0].GetReasoning()
	assert.Equal(t, []any{"czE=", "hm", true}, []any{sealed.GetReasoning(), sealed.GetSummary(), sealed.GetRedacted()})
	removed := chat.FirstMessage(decode(t, answered(`[{"text":"a"},{"functionCall":{"id":"c","name":"f"},"thoughtSignature":"czE="}]`)))
	removed.ToolCalls = nil
	assert.NotContains(t, encode(t, removed), "czE=", "of a call that was removed there is nothing to sign")
}

// Models without thoughts of their own get those of others as texts, and nothing that only a seal is for.
func TestThoughtsAreTextsBetweenTags(t *testing.T) {
	t.Parallel()
	messages, err := chat.ParseMessages([]byte(`[{"role":"assistant","content":[
		{"type":"reasoning","reasoning":"hm","signature":"s"},{"type":"text","text":"a"},
		{"type":"reasoning","reasoning":"c2ln","redacted":true,"internal":{"gemini_function_call_id":"c"}}],
		"tool_calls":[{"id":"c","function":"f","arguments":{},"type":"function"}]}]`))
	require.NoError(t, err)
	body, err := (&gemini.Request{ThinkTags: true, Request: dialect.Request{Messages: messages}}).Append(nil)
	require.NoError(t, err)
	assert.JSONEq(t, `{"generationConfig":{},"contents":[{"role":"model","parts":[
		{"text":"<think signature=\"s\">\nhm\n</think>"},{"text":"a"},
		{"functionCall":{"id":"c","name":"f","args":{}}}]}]}`, string(body))
}

// The API refuses a turn without parts.
func TestATurnOfTheModelHasAPart(t *testing.T) {
	t.Parallel()
	search := &contentv1.Content{Part: &contentv1.Content_ToolUse{ToolUse: &contentv1.ToolUse{ToolType: contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH}}}
	for name, m := range map[string]*modelv1.ChatMessage{
		"a search":                   {Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(search)},
		"no thought":                 {Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(chat.ReasoningPart(""))},
		"a thought":                  {Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(chat.ReasoningPart("hm"))},
		"nothing":                    chat.Assistant(""),
		"signature of a lost call":   {Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.FirstMessage(decode(t, answered(`[{"functionCall":{"name":"f"},"thoughtSignature":"czE="}]`))).GetContent()},
		"a picture that is not sent": {Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(chat.ImagePart("https://x.example/a.png"))},
	} {
		assert.NotContains(t, encode(t, m), `"parts":[]`, name)
	}
	assert.Contains(t, encode(t, &modelv1.ChatMessage{Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(search)}), `"parts":[{"text":"(no content)"}]`)
	blank := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: chat.ListContent(chat.TextPart(""), chat.TextPart("a"))}
	assert.Contains(t, encode(t, blank), `"parts":[{"text":"(no content)"},{"text":"a"}]`, "nor a text without characters")
}

// JSON of others is an object, or is refused.
func TestWhatIsNoObjectIsRefused(t *testing.T) {
	t.Parallel()
	for field, r := range map[string]*dialect.Request{
		"messages":                           {Messages: []*modelv1.ChatMessage{chat.Assistant("", chat.Call("c", "f", `{"a":`))}},
		"tools":                              {Tools: []*toolv1.ToolInfo{{Name: "f", ParametersJson: `[]`}}},
		"config.response_schema.json_schema": {Config: &modelv1.GenerateConfig{ResponseSchema: &modelv1.ResponseSchema{JsonSchema: "{"}}},
	} {
		_, err := gemini.Codec{}.AppendRequest(nil, r)
		var unsupported *dialect.UnsupportedError
		require.ErrorAs(t, err, &unsupported, field)
		assert.Equal(t, field, unsupported.Field)
	}
}

// An error in place of an answer is one, beside an empty list of candidates too.
func TestAnErrorBesideNoCandidatesIsAnError(t *testing.T) {
	t.Parallel()
	_, err := gemini.Codec{}.DecodeResponse([]byte(`{"candidates":[],"error":{"code":503,"message":"m"}}`))
	var said *dialect.Error
	require.ErrorAs(t, err, &said)
	assert.Equal(t, 503, said.Status)
	assert.Equal(t, "m", gemini.Codec{}.DecodeError([]byte(`{"message":"m"}`)).Message, "as what is in between says it")
}

func TestWhyAnAnswerEndsIsSaid(t *testing.T) {
	t.Parallel()
	const rating = `"safetyRatings":[{"category":"A","probability":"LOW"},{"category":"B","probability":"HIGH","blocked":true}]`
	for body, want := range map[string]*modelv1.Choice{
		`{"promptFeedback":{"blockReason":"SAFETY",` + rating + `}}`: {
			StopReason:  modelv1.StopReason_STOP_REASON_CONTENT_FILTER,
			StopDetails: &modelv1.StopDetails{Type: "SAFETY", Category: "B", Explanation: "Blocked: SAFETY", Categories: []*modelv1.StopCategory{{Category: "B", Level: "HIGH"}}},
		},
		`{"candidates":[{"finishReason":"PROHIBITED_CONTENT","finishMessage":"no"}]}`: {
			StopReason: modelv1.StopReason_STOP_REASON_CONTENT_FILTER, StopDetails: &modelv1.StopDetails{Type: "PROHIBITED_CONTENT", Explanation: "no"},
		},
		`{"candidates":[{"finishReason":"IMAGE_SAFETY"}]}`:             {StopReason: modelv1.StopReason_STOP_REASON_CONTENT_FILTER},
		`{"candidates":[{"finishReason":"IMAGE_PROHIBITED_CONTENT"}]}`: {StopReason: modelv1.StopReason_STOP_REASON_CONTENT_FILTER},
		`{"candidates":[{"finishReason":"IMAGE_RECITATION"}]}`:         {StopReason: modelv1.StopReason_STOP_REASON_CONTENT_FILTER},
		`{"candidates":[{"finishReason":"SAFETY",` + rating + `}]}`: {
			StopReason:  modelv1.StopReason_STOP_REASON_CONTENT_FILTER,
			StopDetails: &modelv1.StopDetails{Type: "SAFETY", Category: "B", Explanation: "filtered for: B (HIGH)", Categories: []*modelv1.StopCategory{{Category: "B", Level: "HIGH"}}},
		},
		`{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"m"}]}`: {StopReason: modelv1.StopReason_STOP_REASON_UNKNOWN},
		answered(`[{"functionCall":{"name":"f"}}]`):                                       {StopReason: modelv1.StopReason_STOP_REASON_TOOL_CALLS},
	} {
		choice := decode(t, body).GetChoices()[0]
		choice.Message = nil
		assert.Empty(t, cmp.Diff(want, choice, protocmp.Transform()), body)
	}
}

// Ranges of citations are of characters, where the vendor's are of bytes.
func TestCitationsAreInCharacters(t *testing.T) {
	t.Parallel()
	output := decode(t, `{"candidates":[{"content":{"parts":[{"text":"Über"},{"text":"Größe zählt."}]},"groundingMetadata":{"groundingChunks":[{"web":{"uri":"u","title":"t"}}],
		"groundingSupports":[{"segment":{"startIndex":8,"endIndex":14,"text":"zählt"},"groundingChunkIndices":[0]},{"segment":{"endIndex":99},"groundingChunkIndices":[0]}]}}]}`)
	parts := chat.FirstMessage(output).GetContent().GetList().GetParts()
	assert.Empty(t, parts[0].GetText().GetCitations())
	require.Len(t, parts[1].GetText().GetCitations(), 1)
	cited := parts[1].GetText().GetCitations()[0]
	assert.Equal(t, []any{int64(6), int64(11), "u", "t"}, []any{cited.GetCitedRange().GetStart(), cited.GetCitedRange().GetEnd(), cited.GetUrl(), cited.GetTitle()})
}

// A citation is about the part that it names, where that part can have it.
func TestACitationIsOfItsPart(t *testing.T) {
	t.Parallel()
	for said, want := range map[string][]int{`"partIndex":2`: {0, 1}, `"partIndex":0`: {1, 0}, `"partIndex":9`: {1, 0}, `"partIndex":-1`: {1, 0}, `"endIndex":3`: {1, 0}} {
		output := decode(t, `{"candidates":[{"content":{"parts":[{"text":"hm","thought":true},{"text":"Yes","thoughtSignature":"czE="},{"text":"Yes"}]},"groundingMetadata":{
			"groundingChunks":[{"web":{"uri":"u"}}],"groundingSupports":[{"segment":{"endIndex":3,`+said+`},"groundingChunkIndices":[0]}]}}]}`)
		var got []int
		for _, part := range chat.FirstMessage(output).GetContent().GetList().GetParts() {
			if text := part.GetText(); text != nil {
				got = append(got, len(text.GetCitations()))
			}
		}
		assert.Equal(t, want, got, said)
	}
}

// However many citations are claimed, the work for them is bounded.
func TestTheWorkForCitationsIsBounded(t *testing.T) {
	t.Parallel()
	const many = 100_000
	supports := strings.Repeat(`{"segment":{"endIndex":400000},"groundingChunkIndices":[0]},`, many)
	body := `{"candidates":[{"content":{"parts":[{"text":"` + strings.Repeat("word", many) + `"}]},"groundingMetadata":{"groundingChunks":[{"web":{"uri":"u"}}],"groundingSupports":[` +
		strings.TrimSuffix(supports, ",") + `]}}]}`
	cited := len(chat.FirstMessage(decode(t, body)).GetContent().GetList().GetParts()[0].GetText().GetCitations())
	assert.True(t, 0 < cited && cited < many/10, "%d citations", cited)
}

func TestUsageThatCannotBeIsUnknown(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]*modelv1.ModelUsage{
		`{"promptTokenCount":-5,"totalTokenCount":5}`:                                 nil,
		`{"promptTokenCount":5,"thoughtsTokenCount":-1,"totalTokenCount":5}`:          nil,
		`{"promptTokenCount":5,"cachedContentTokenCount":9}`:                          {TotalTokens: 5, InputTokensCacheRead: new(int64(9)), ReasoningTokens: new(int64(0))},
		`{"promptTokenCount":5,"toolUsePromptTokenCount":3,"candidatesTokenCount":2}`: {InputTokens: 8, OutputTokens: 2, TotalTokens: 10, ReasoningTokens: new(int64(0))},
	} {
		body := `{"responseId":"r","usageMetadata":` + said + `}`
		assert.Empty(t, cmp.Diff(want, decode(t, body).GetUsage(), protocmp.Transform()), said)
		var facts dialect.Facts
		gemini.Codec{}.ScanUsage([]byte(body), &facts)
		assert.Empty(t, cmp.Diff(want, facts.Usage, protocmp.Transform()), said)
	}
}

// What a function is called with has members of any name, which say nothing of the answer: a stream that breaks off
// after such a call is no whole answer.
func TestScanUsageReadsTheAnswersOwnMembers(t *testing.T) {
	t.Parallel()
	for _, arguments := range []string{`{"finishReason":"MAX_TOKENS"}`, `{"promptFeedback":{"blockReason":"SAFETY"}}`, `{"blockReason":"SAFETY"}`} {
		var facts dialect.Facts
		gemini.Codec{}.ScanUsage([]byte(`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":`+arguments+`}}]}}]}`), &facts)
		assert.False(t, facts.Ended, arguments)
		assert.Equal(t, modelv1.StopReason_STOP_REASON_TOOL_CALLS, facts.StopReason, arguments)
	}
	for answer, want := range map[string]modelv1.StopReason{
		`{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"MAX_TOKENS"}]}`: modelv1.StopReason_STOP_REASON_MAX_TOKENS,
		`{"promptFeedback":{"blockReason":"SAFETY"}}`:                                       modelv1.StopReason_STOP_REASON_CONTENT_FILTER,
	} {
		var facts dialect.Facts
		gemini.Codec{}.ScanUsage([]byte(answer), &facts)
		assert.True(t, facts.Ended)
		assert.Equal(t, want, facts.StopReason)
	}
}

// A text of a stream is one text, wherever its signatures come.
func TestSignaturesDoNotSplitATextOfAStream(t *testing.T) {
	t.Parallel()
	for pieces, want := range map[string]string{
		`{"text":"Fo","thoughtSignature":"YQ=="}|{"text":"ur."}`:                              `[{"text":"Four.","thoughtSignature":"YQ=="}]`,
		`{"text":"Fo"}|{"text":"ur.","thoughtSignature":"YQ=="}`:                              `[{"text":"Four.","thoughtSignature":"YQ=="}]`,
		`{"text":"Fo","thoughtSignature":"YQ=="}|{"text":"ur.","thoughtSignature":"Yg=="}`:    `[{"text":"Four.","thoughtSignature":"Yg=="}]`,
		`{"text":"Four.","thoughtSignature":"YQ=="}|{"text":"","thoughtSignature":"Yg=="}`:    `[{"text":"Four.","thoughtSignature":"YQ=="},{"text":"","thoughtSignature":"Yg=="}]`,
		`{"text":"hm","thought":true}|{"text":"Four."}|{"text":"","thoughtSignature":"YQ=="}`: `[{"text":"Four.","thoughtSignature":"YQ=="}]`,
	} {
		s := gemini.Codec{}.NewStreamReader()
		for piece := range strings.SplitSeq(pieces, "|") {
			_, err := s.Add(dialect.Event{Data: []byte(`{"candidates":[{"content":{"parts":[` + piece + `]}}],"usageMetadata":{"promptTokenCount":3}}`)})
			require.NoError(t, err)
		}
		assert.False(t, s.Complete(), pieces)
		assert.Equal(t, int64(3), s.Usage().GetInputTokens())
		output, err := s.Response().Output(nil)
		require.NoError(t, err)
		assert.Equal(t, "Four.", output.GetCompletion(), pieces)
		assert.Equal(t, `{"contents":[{"role":"model","parts":`+want+`}],"generationConfig":{}}`, encode(t, chat.FirstMessage(output)), pieces)
	}
}

// A finish reason does not end a stream: some servers send one with each piece, and the usage after it.
func TestAStreamIsReadAfterAFinishReason(t *testing.T) {
	t.Parallel()
	const (
		piece = `{"candidates":[{"content":{"parts":[{"text":"Fo"}]},"finishReason":"STOP"}]}|{"candidates":[{"content":{"parts":[{"text":"ur."}]},"finishReason":"STOP"}]}`
		early = `{"candidates":[{"content":{"parts":[{"text":""}]},"finishReason":"STOP"}]}|{"candidates":[{"content":{"parts":[{"text":"Four."}]}}]}`
		usage = `|{"usageMetadata":{"promptTokenCount":3}}`
	)
	for _, events := range []string{piece + usage, early + usage, piece + usage + "|[DONE]"} {
		s := gemini.Codec{}.NewStreamReader()
		for data := range strings.SplitSeq(events, "|") {
			assert.False(t, s.Done(), events)
			_, err := s.Add(dialect.Event{Data: []byte(data)})
			require.NoError(t, err, events)
			assert.True(t, s.Complete(), events)
		}
		assert.Equal(t, strings.HasSuffix(events, "[DONE]"), s.Done(), events)
		var facts dialect.Facts
		gemini.Codec{}.ScanUsage([]byte("[DONE]"), &facts)
		assert.Zero(t, facts, "it is no piece")
		output, err := s.Response().Output(nil)
		require.NoError(t, err)
		assert.Equal(t, []any{"Four.", int64(3), modelv1.StopReason_STOP_REASON_STOP}, []any{output.GetCompletion(), output.GetUsage().GetInputTokens(), chat.StopReason(output)}, events)
	}
}

// The likely tokens of a piece of a stream are those of its own tokens, where another piece has none.
func TestLikelyTokensOfAStreamBelongToTheirTokens(t *testing.T) {
	t.Parallel()
	s := gemini.Codec{}.NewStreamReader()
	for _, data := range []string{
		`{"candidates":[{"logprobsResult":{"chosenCandidates":[{"token":"a"}]}}]}`,
		`{"candidates":[{"logprobsResult":{"chosenCandidates":[{"token":"b"}],"topCandidates":[{"candidates":[{"token":"c"}]},{}]},"finishReason":"STOP"}]}`,
	} {
		_, err := s.Add(dialect.Event{Data: []byte(data)})
		require.NoError(t, err)
	}
	output, err := s.Response().Output(nil)
	require.NoError(t, err)
	tokens := output.GetChoices()[0].GetLogprobs().GetContent()
	assert.Empty(t, tokens[0].GetTopLogprobs())
	assert.Equal(t, "c", tokens[1].GetTopLogprobs()[0].GetToken())
}
