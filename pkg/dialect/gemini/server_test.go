package gemini_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// parse reads a request of a client.
func parse(t *testing.T, body string) *dialect.Request {
	t.Helper()
	r, err := gemini.Codec{}.ParseRequest([]byte(body))
	require.NoError(t, err, body)
	return r
}

// Clients spell members in either way; JSON of others is never respelled.
func TestARequestIsReadAsItWasMeant(t *testing.T) {
	t.Parallel()
	want := &modelv1.GenerateConfig{
		MaxTokens: new(int64(5)), Temperature: new(0.5), TopP: new(0.9), TopK: new(int32(40)), NumChoices: new(int32(2)), FrequencyPenalty: new(0.1), PresencePenalty: new(0.2),
		Seed: new(int64(7)), Logprobs: new(true), TopLogprobs: new(int32(3)), StopSeqs: &modelv1.StringList{Values: []string{"END"}}, ReasoningTokens: new(int64(9)),
		ReasoningEffort: new("low"), ResponseSchema: &modelv1.ResponseSchema{Name: "response", JsonSchema: `{"type": "object", "a_b": 1.0}`},
	}
	for _, body := range []string{
		`{"contents":[{"role":"user","parts":[{"text":"x"}]}],"generationConfig":{"maxOutputTokens":5,"temperature":0.5,"topP":0.9,"topK":40,"candidateCount":2,"frequencyPenalty":0.1,
			"presencePenalty":0.2,"seed":7,"responseLogprobs":true,"logprobs":3,"stopSequences":["END"],"responseMimeType":"application/json",
			"responseJsonSchema":{"type": "object", "a_b": 1.0},"thinkingConfig":{"thinkingBudget":9,"thinkingLevel":"LOW","includeThoughts":true}},"safetySettings":[]}`,
		`{"contents":[{"role":"user","parts":[{"text":"x"}]}],"generation_config":{"max_output_tokens":5,"temperature":0.5,"top_p":0.9,"top_k":40.0,"candidate_count":2,"frequency_penalty":0.1,
			"presence_penalty":0.2,"seed":7,"response_logprobs":true,"logprobs":3,"stop_sequences":["END"],"response_mime_type":"application/json",
			"response_json_schema":{"type": "object", "a_b": 1.0},"thinking_config":{"thinking_budget":9,"thinking_level":"LOW","include_thoughts":true}},"safety_settings":[]}`,
	} {
		got := parse(t, body).Config
		assert.True(t, proto.Equal(want, got), "%v", got)
	}
	r := parse(t, `{"contents":[{"parts":[{"text":"x"}]}],"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT","properties":{"type":{"type":"STRING"}}}},
		{"name":"g","parameters":{"type": "object"}},{"name":"h"}]}]}`)
	var schemas []string
	for _, tool := range r.Tools {
		schemas = append(schemas, tool.GetParametersJson())
	}
	assert.Equal(t, []string{`{"type":"object","properties":{"type":{"type":"string"}}}`, `{"type": "object"}`, `{"type":"object","properties":{}}`}, schemas)
	assert.Nil(t, r.Choice)
}

// The vendor's types are in capitals, and those of values are the client's.
func TestTypesOfValuesAreKept(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"%s","properties":{"default":{"type":"%s","enum":["A"],"example":{"type":"A"}},"enum":{"type":"%[2]s","items":{"type":"%[2]s"}}},` +
		`"default":{"type":"A"},"const":{"type":"A"},"examples":[{"type":"A"}],"anyOf":[{"type":"%[1]s"}]}`
	r := parse(t, `{"contents":[{"parts":[{"text":"x"}]}],"tools":[{"functionDeclarations":[{"name":"f","parameters":`+fmt.Sprintf(schema, "OBJECT", "STRING")+`}]}]}`)
	assert.Equal(t, fmt.Sprintf(schema, "object", "string"), r.Tools[0].GetParametersJson())
}

// A choice of a function that is not on offer leaves the choice to the model, and keeps those that are.
func TestAChoiceOfAFunctionThatIsNotOnOfferIsTheModels(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"ANY", "VALIDATED"} {
		r := parse(t, `{"contents":[{"parts":[{"text":"x"}]}],"tools":[{"functionDeclarations":[{"name":"f"}]}],
			"toolConfig":{"functionCallingConfig":{"mode":"`+mode+`","allowedFunctionNames":["g"]}}}`)
		assert.Len(t, r.Tools, 1, mode)
		assert.Equal(t, toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO, r.Choice.GetMode(), mode)
	}
}

// Clients that send no ids mean the results in the order of the calls. The ids that calls then get are the same each
// time, so that the conversation is.
func TestResultsBelongToTheirCalls(t *testing.T) {
	t.Parallel()
	const body = `{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f","args":{"a":1}}},{"functionCall":{"name":"g"}},{"functionCall":{"name":"f","args":{"a":2}}}]},
		{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"output":"one"}}},{"functionResponse":{"name":"g","response":{"error":"no"}}},
		{"functionResponse":{"name":"f","response":{"result":"two"}}},{"functionResponse":{"name":"f","response":{}}},{"text":"So?"}]}]}`
	r := parse(t, body)
	require.Len(t, r.Messages, 6)
	var calls []string
	for _, call := range r.Messages[0].GetToolCalls() {
		calls = append(calls, call.GetId())
	}
	var ids, texts []string
	for _, m := range r.Messages[1:] {
		texts = append(texts, chat.Text(m))
		ids = append(ids, m.GetToolCallIds()...)
	}
	assert.Equal(t, []string{"one", "no", `{"result":"two"}`, "{}", "So?"}, texts)
	assert.Equal(t, append(calls, "call_f_4"), ids)
	assert.Equal(t, "no", r.Messages[2].GetError().GetMessage())
	assert.Equal(t, r.Messages[0].GetToolCalls()[0].GetId(), parse(t, body).Messages[0].GetToolCalls()[0].GetId())
}

func TestWhatARequestMustNotSayIsNamed(t *testing.T) {
	t.Parallel()
	const turn = `"contents":[{"parts":[{"text":"x"}]}]`
	for body, want := range map[string]string{
		`[]`:                "no JSON object",
		`{}`:                "contents: is required",
		`{"contents":[]}`:   "contents",
		`{"contents":5}`:    "contents: must not be a number",
		`{"contents":[{}]}`: "contents[0].parts: is required",
		`{"contents":[{"role":"robot","parts":[{"text":"x"}]}]}`:                                                           "contents[0].role",
		`{"contents":[{"parts":[{}]}]}`:                                                                                    "contents[0].parts[0]",
		`{"contents":[{"parts":[{"file_data":{"file_uri":"ftp://x.example"}}]}]}`:                                          "contents[0].parts[0].fileData.fileUri: is neither data:",
		`{"contents":[{"parts":[{"file_data":{"file_uri":"https://generativelanguage.googleapis.com/v1beta/files/a"}}]}]}`: "contents[0].parts[0].fileData.fileUri: is a file that is kept at the vendor",
		`{"contents":[{"parts":[{"fileData":"https://x.example"}]}]}`:                                                      "contents[0].parts[0].fileData: is no object",
		`{"contents":[{"role":"model","parts":[{"fileData":{}}]}]}`:                                                        "contents[0].parts[0].fileData",
		`{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"no!"}}]}]}`:                                  "contents[0].parts[0].inlineData.data: is not in base64",
		`{"contents":[{"role":"model","parts":[{"inlineData":{"mimeType":"image/png","data":"no!"}}]}]}`:                   "contents[0].parts[0].inlineData.data",
		`{"contents":[{"role":"model","parts":[{"inlineData":{"data":"AAAA"}}]}]}`:                                         "contents[0].parts[0].inlineData.mimeType: is required",
		`{"contents":[{"role":"model","parts":[{"functionResponse":{"name":"f"}}]}]}`:                                      "contents[0].parts[0].functionResponse: is of a turn of the user",
		`{"contents":[{"role":"model","parts":[{"functionCall":{}}]}]}`:                                                    "contents[0].parts[0].functionCall.name: is required",
		`{"contents":[{"role":"model","parts":[{"toolCall":{}}]}]}`:                                                        "contents[0].parts[0]: is no part",
		`{"contents":[{"parts":[{"inlineData":{"data":"AAAA"}}]}]}`:                                                        "inlineData.mimeType: is required",
		`{"contents":[{"parts":[{"functionResponse":{}}]}]}`:                                                               "functionResponse.name",
		`{` + turn + `,"systemInstruction":{"parts":[{"inlineData":{}}]}}`:                                                 "systemInstruction.parts[0]",
		`{` + turn + `,"cachedContent":"cachedContents/x"}`:                                                                "cachedContent",
		`{` + turn + `,"tools":[{"functionDeclarations":{}}]}`:                                                             "tools[0].functionDeclarations",
		`{` + turn + `,"tools":[{"functionDeclarations":[{}]}]}`:                                                           "tools[0].functionDeclarations[0].name",
		`{` + turn + `,"toolConfig":{"functionCallingConfig":{"mode":"SOME"}}}`:                                            "functionCallingConfig.mode",
		`{` + turn + `,"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["a","b"]}}}`:            "none of the functions that may be called",
		`{` + turn + `,"generationConfig":{"maxOutputTokens":0}}`:                                                          "generationConfig.maxOutputTokens",
		`{` + turn + `,"generationConfig":{"candidateCount":1000000}}`:                                                     "1 to 1024",
		`{` + turn + `,"generationConfig":{"topK":-1}}`:                                                                    "generationConfig.topK",
		`{` + turn + `,"generationConfig":{"responseModalities":["AUDIO"]}}`:                                               "generationConfig.responseModalities",
		`{` + turn + `,"generationConfig":{"responseMimeType":"text/x.enum"}}`:                                             "generationConfig.responseMimeType",
	} {
		_, err := gemini.Codec{}.ParseRequest([]byte(body))
		var said *dialect.RequestError
		require.ErrorAs(t, err, &said, body)
		assert.ErrorContains(t, err, want, body)
	}
}

// What a client sends back of an answer is what the model said, with all that its vendor needs.
func TestAnAnswerIsReadBackAndCanBeSentAgain(t *testing.T) {
	t.Parallel()
	first := decode(t, answered(everyPart))
	body, err := gemini.Codec{}.AppendResponse(nil, first, dialect.ResponseMeta{})
	require.NoError(t, err)
	again := decode(t, string(body))
	for _, output := range []*modelv1.ModelOutput{first, again} {
		for _, part := range chat.FirstMessage(output).GetContent().GetList().GetParts() {
			if use := part.GetToolUse(); use != nil {
				use.Id = ""
			}
		}
	}
	assert.Equal(t, encode(t, chat.FirstMessage(first)), encode(t, chat.FirstMessage(again)))
	assert.True(t, proto.Equal(chat.FirstMessage(first).GetContent(), chat.FirstMessage(again).GetContent()), "%s", body)
}

func TestTokensAreCountedOfARequestOrOfItsTurnsAlone(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"contents":[{"parts":[{"text":"x"}]}]}`, `{"generate_content_request":{"model":"models/m","contents":[{"parts":[{"text":"x"}]}]}}`} {
		r, err := gemini.Codec{}.ParseCountRequest([]byte(body))
		require.NoError(t, err)
		assert.Equal(t, "x", chat.Text(r.Messages[0]))
	}
}

// Bytes have either alphabet of base64, with or without padding: the vendor's own clients write the one, its documents
// the other.
func TestBytesInEitherAlphabet(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"+/+/AA==", "-_-_AA==", "-_-_AA"} {
		r, err := gemini.Codec{}.ParseRequest([]byte(`{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"` + data + `"}}]}]}`))
		require.NoError(t, err, data)
		parts := chat.Parts(r.Messages[0].GetContent())
		assert.Equal(t, "data:image/png;base64,+/+/AA==", parts[0].GetImage().GetMedia().GetUri(), data)
	}
}

// A client decodes a signature and encodes it anew, in the other alphabet. Signatures of any vendor survive that,
// whatever their form.
func TestSignaturesSurviveAClientThatDecodesThem(t *testing.T) {
	t.Parallel()
	for _, signature := range []string{"+/+/AA==", "gAAA-_x=", "any text", "ZXZhbGZsZWV0Ong="} {
		m := chat.Assistant("")
		m.Content = chat.ListContent(&contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: signature, Redacted: true}}}, chat.TextPart("So."))
		body, err := gemini.Codec{}.AppendResponse(nil, chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_STOP), dialect.ResponseMeta{})
		require.NoError(t, err)
		var said struct {
			Candidates []struct {
				Content struct {
					Parts []struct {
						Text      string `json:"text"`
						Signature []byte `json:"thoughtSignature"`
					} `json:"parts"`
				} `json:"content"`
			} `json:"candidates"`
		}
		require.NoError(t, json.Unmarshal(body, &said), "a signature is bytes: %s", body)
		part := said.Candidates[0].Content.Parts[0]
		again := fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"text":%q,"thoughtSignature":%q}]}]}`,
			part.Text, base64.URLEncoding.EncodeToString(part.Signature))
		r, err := gemini.Codec{}.ParseRequest([]byte(again))
		require.NoError(t, err)
		parts := chat.Parts(r.Messages[1].GetContent())
		assert.Equal(t, signature, parts[0].GetReasoning().GetReasoning())
	}
}

// A call that a client sends without a signature is a call and nothing else: another vendor's model would take the
// place of a missing signature for reasoning. Calls that a Gemini server has answered keep their places.
func TestACallWithoutASignatureIsNoReasoning(t *testing.T) {
	t.Parallel()
	const turn = `{"contents":[{"role":"model","parts":[{"text":"a"},{"functionCall":{"id":"c","name":"f","args":{}}%s},{"functionCall":{"id":"d","name":"f","args":{}}}]}]}`
	for signature, want := range map[string]int{"": 1, `,"thoughtSignature":"czE="`: 3} {
		m := parse(t, fmt.Sprintf(turn, signature)).Messages[0]
		assert.Len(t, m.GetToolCalls(), 2)
		assert.Len(t, chat.Parts(m.GetContent()), want, signature)
	}
}

// reasonings are kinds of reasoning that other vendors' models give.
func reasonings() map[string]*contentv1.Content {
	part := func(internal string, r *contentv1.Reasoning) *contentv1.Content {
		return &contentv1.Content{InternalJson: internal, Part: &contentv1.Content_Reasoning{Reasoning: r}}
	}
	return map[string]*contentv1.Content{
		"sealed":                part("", &contentv1.Reasoning{Reasoning: "c2ln", Summary: new("let me think"), Redacted: true}),
		"sealed, no base64":     part("", &contentv1.Reasoning{Reasoning: "SIGNED_abc-_=", Summary: new("let me think"), Redacted: true}),
		"sealed, hidden":        part("", &contentv1.Reasoning{Reasoning: "c2ln", Summary: new(""), Redacted: true}),
		"sealed alone":          part("", &contentv1.Reasoning{Reasoning: "c2ln", Redacted: true}),
		"sealed under an id":    part("", &contentv1.Reasoning{Reasoning: "ZW5j", Summary: new("let me think"), Signature: new("rs_1"), Redacted: true}),
		"sealed with more data": part(`{"a": 1}`, &contentv1.Reasoning{Reasoning: "c2ln", Summary: new("let me think"), Redacted: true}),
		"a summary":             part("", &contentv1.Reasoning{Summary: new("let me think"), Signature: new("rs_1")}),
		"signed":                part("", &contentv1.Reasoning{Reasoning: "let me think", Signature: new("sig==")}),
	}
}

// The reasoning of another vendor's model comes back as it was, whether a text or a call follows, and whether the
// answer came whole or in pieces, which a client sends back as parts. A thought that the client leaves out is not
// needed.
func TestReasoningOfOtherVendorsSurvivesAClient(t *testing.T) {
	t.Parallel()
	for name, part := range reasonings() {
		for follows, m := range map[string]*modelv1.ChatMessage{
			"text": chat.Assistant(""), "text and call": chat.Assistant("", chat.Call("c1", "f", `{"a":1}`)), "call": chat.Assistant("", chat.Call("c1", "f", `{"a":1}`)),
		} {
			parts := []*contentv1.Content{part}
			thought := dialect.Readable(part)
			pieces := []*modelv1.GenerateDelta{dialect.ReasoningDelta(thought[:len(thought)/2]), dialect.ReasoningDelta(thought[len(thought)/2:]), dialect.PartDelta(part)}
			if follows != "call" {
				parts = append(parts, chat.TextPart("So."))
				pieces = append(pieces, dialect.TextDelta("So"), dialect.TextDelta("."))
			}
			m.Content = chat.ListContent(parts...)
			output := chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_STOP)
			body, err := gemini.Codec{}.AppendResponse(nil, output, dialect.ResponseMeta{})
			require.NoError(t, err)
			var wire bytes.Buffer
			w := gemini.Codec{}.NewStreamWriter(&wire, dialect.ResponseMeta{})
			for _, d := range pieces {
				require.NoError(t, w.Write(d))
			}
			require.NoError(t, w.Close(output))
			var streamed []map[string]any
			for event, err := range (gemini.Codec{}).ReadEvents(&wire) {
				require.NoError(t, err)
				streamed = append(streamed, partsOf(t, event.Data)...)
			}
			for way, said := range map[string][]map[string]any{"whole": partsOf(t, body), "streamed": streamed} {
				for _, thoughts := range []bool{true, false} {
					if !thoughts {
						if follows == "text" && way == "whole" {
							continue // It may be the server's own, of which the signature is all.
						}
						said = slices.DeleteFunc(said, func(p map[string]any) bool { return p["thought"] == true })
					}
					back, err := json.Marshal(said)
					require.NoError(t, err)
					about := fmt.Sprintf("%s, %s, %s, thoughts %t: %s", name, follows, way, thoughts, back)
					got := parse(t, `{"contents":[{"role":"model","parts":`+string(back)+`}]}`).Messages[0]
					read := chat.Parts(got.GetContent())
					require.NotEmpty(t, read, about)
					assert.True(t, proto.Equal(part, read[0]), about)
					assert.Len(t, got.GetToolCalls(), len(m.GetToolCalls()), about)
					text := ""
					for _, p := range read[1:] {
						require.NotNil(t, p.GetText(), about)
						text += p.GetText().GetText()
					}
					assert.Equal(t, chat.Text(m), text, about)
				}
			}
		}
	}
}

// partsOf are the parts of an answer's first candidate, as a client keeps them.
func partsOf(t *testing.T, answer []byte) []map[string]any {
	t.Helper()
	var said struct {
		Candidates []struct {
			Content struct{ Parts []map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(answer, &said))
	if len(said.Candidates) == 0 {
		return nil
	}
	return said.Candidates[0].Content.Parts
}

// The computer, whose functions the client runs, is these functions to other models; tools that no other vendor runs
// are left out.
func TestTheComputerIsItsFunctions(t *testing.T) {
	t.Parallel()
	for _, member := range []string{"computerUse", "computer_use"} {
		r, err := gemini.Codec{}.ParseRequest([]byte(`{"contents":[{"role":"user","parts":[{"text":"q"}]}],"tools":[{"googleMaps":{}},
			{"` + member + `":{"environment":"ENVIRONMENT_BROWSER","excludedPredefinedFunctions":["search"]}},{"functionDeclarations":[{"name":"f"}]}]}`))
		require.NoError(t, err)
		var names []string
		for _, tool := range r.Tools {
			names = append(names, tool.GetName())
		}
		assert.Len(t, names, 13)
		assert.Contains(t, names, "click_at")
		assert.Contains(t, names, "f")
		assert.NotContains(t, names, "search")
	}
}

// Google's clients keep each event of a stream as a turn of the model. To other vendors' models these would be many
// messages, or one with as many lines.
func TestPiecesOfAStreamAreOneAnswer(t *testing.T) {
	t.Parallel()
	m := parse(t, `{"contents":[{"parts":[{"text":"x"}]},{"parts":[{"text":"th","thought":true}],"role":"model"},{"parts":[{"text":"ink","thought":true}],"role":"model"},
		{"parts":[{"text":"he"}],"role":"model"},{"parts":[{"text":"llo"},{"text":""}],"role":"model"},{"parts":[{"functionCall":{"id":"1","name":"f","args":{}}}],"role":"model"},
		{"parts":[],"role":"model"},{"parts":[{"functionResponse":{"name":"f","response":{"output":"y"}}}]}]}`).Messages
	require.Len(t, m, 3)
	parts := m[1].GetContent().GetList().GetParts()
	require.Len(t, parts, 2)
	assert.Equal(t, "think", parts[0].GetReasoning().GetReasoning())
	assert.Equal(t, "hello", parts[1].GetText().GetText())
	assert.Equal(t, m[1].GetToolCalls()[0].GetId(), m[2].GetToolCallIds()[0])
}

// A signature is on the first piece of a text, and on the last of a thought.
func TestASignatureDividesPiecesOfAnAnswer(t *testing.T) {
	t.Parallel()
	var turns string
	for _, p := range []string{
		`"text":"t","thought":true`, `"text":"u","thought":true,"thoughtSignature":"b25l"`, `"text":"v","thought":true`,
		`"text":"a"`, `"text":"b"`, `"text":"c","thoughtSignature":"c2ln"`, `"text":"d"`,
	} {
		turns += `,{"role":"model","parts":[{` + p + `}]}`
	}
	var got []string
	for _, p := range parse(t, `{"contents":[{"parts":[{"text":"x"}]}`+turns+`]}`).Messages[1].GetContent().GetList().GetParts() {
		got = append(got, p.GetText().GetText()+p.GetReasoning().GetReasoning()+p.GetReasoning().GetSummary())
	}
	assert.Equal(t, []string{"b25ltu", "v", "ab", "c2ln", "cd"}, got)
}

// Google's client for Python writes bytes in the alphabet of addresses, also those of a function's result.
func TestMediaOfResultsIsReadInEitherAlphabet(t *testing.T) {
	t.Parallel()
	m := parse(t, `{"contents":[{"parts":[{"text":"x"}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"f",
		"response":{"output":"y"},"parts":[{"inlineData":{"mimeType":"image/png","data":"-_-_"}}]}}]}]}`).Messages
	assert.Equal(t, "data:image/png;base64,+/+/", m[2].GetContent().GetList().GetParts()[1].GetImage().GetMedia().GetUri())
}

// The value of an enum is a bare word at Gemini, and a text in JSON at other vendors.
func TestAnAnswerThatIsABareEnumIsRefused(t *testing.T) {
	t.Parallel()
	_, err := gemini.Codec{}.ParseRequest([]byte(`{"contents":[{"parts":[{"text":"x"}]}],"generationConfig":{"responseMimeType":"text/x.enum","responseSchema":{"type":"STRING","enum":["a"]}}}`))
	require.ErrorContains(t, err, "generationConfig.responseMimeType")
}
