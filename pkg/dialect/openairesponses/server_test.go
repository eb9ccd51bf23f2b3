package openairesponses_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

var meta = dialect.ResponseMeta{ID: "resp_1", Model: "m", Created: 1_700_000_000}

func TestAClientsConversation(t *testing.T) {
	t.Parallel()
	r, err := openairesponses.Codec{}.ParseRequest([]byte(`{"model":"m","instructions":"Be brief.","input":[
		{"role":"developer","content":"In Latin."},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"look"},{"type":"input_image","image_url":"data:image/png;base64,aGk=","detail":"low"},
			{"type":"input_file","file_data":"data:application/pdf;base64,aGk=","filename":"a.pdf"}]},
		{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"ZW5j"},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me see."}],"phase":"commentary"},
		{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\": 1}"},{"type":"function_call","call_id":"c2","name":"g","arguments":"{"},
		{"type":"function_call_output","call_id":"c1","output":"one"},
		{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"two"}]},
		{"role":"assistant","content":"Three."}],
		"max_output_tokens":9,"temperature":0.5,"top_p":0.25,"top_logprobs":2,"include":["message.output_text.logprobs"],"parallel_tool_calls":false,
		"reasoning":{"effort":"low","summary":"auto","mode":"pro"},"text":{"verbosity":"high","format":{"type":"json_schema","name":"s","schema":{"type": "object"},"strict":true}}}`))
	require.NoError(t, err)
	for _, m := range r.Messages {
		m.Id = ""
		for _, call := range m.GetToolCalls() {
			call.ParseError = nil
		}
	}
	assert.JSONEq(t, `[{"role":"system","content":"Be brief."},{"role":"system","content":"In Latin."},
		{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","image":"data:image/png;base64,aGk=","detail":"low"},
			{"type":"document","document":"data:application/pdf;base64,aGk=","filename":"a.pdf","mime_type":"application/pdf","citations":false}]},
		{"role":"assistant","source":"generate","content":[{"type":"reasoning","reasoning":"ZW5j","summary":"s","signature":"rs_1","redacted":true},
			{"type":"text","text":"Let me see.","internal":{"message_id":"","message_phase":"commentary"}}],
			"tool_calls":[{"id":"c1","function":"f","arguments":{"a":1},"type":"function"},{"id":"c2","function":"g","arguments":{},"type":"function"}]},
		{"role":"tool","content":"one","tool_call_id":"c1","function":"f"},{"role":"tool","content":[{"type":"text","text":"two"}],"tool_call_id":"c2","function":"g"},
		{"role":"assistant","source":"generate","content":"Three."}]`, string(chat.MessagesJSON(r.Messages)))
	assert.Empty(t, cmp.Diff(&modelv1.GenerateConfig{
		MaxTokens: new(int64(9)), Temperature: new(0.5), TopP: new(0.25), Logprobs: new(true), TopLogprobs: new(int32(2)), ParallelToolCalls: new(false),
		ReasoningEffort: new("low"), ReasoningSummary: new("auto"), ReasoningMode: new("pro"), Verbosity: new("high"),
		ResponseSchema: &modelv1.ResponseSchema{Name: "s", JsonSchema: `{"type": "object"}`, Strict: new(true)},
	}, r.Config, protocmp.Transform()))
}

func TestTheOldNameOfASummaryIsRead(t *testing.T) {
	t.Parallel()
	for reasoning, want := range map[string]string{`{"generate_summary":"concise"}`: "concise", `{"generate_summary":"concise","summary":"auto"}`: "auto"} {
		r, err := openairesponses.Codec{}.ParseRequest([]byte(`{"model":"m","input":"q","reasoning":` + reasoning + `}`))
		require.NoError(t, err)
		assert.Equal(t, want, r.Config.GetReasoningSummary())
	}
}

func TestAChoiceOfAToolThatIsNotOnOfferIsTheModels(t *testing.T) {
	t.Parallel()
	r, err := openairesponses.Codec{}.ParseRequest([]byte(`{"model":"m","input":"q","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"}}`))
	require.NoError(t, err)
	assert.Equal(t, toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO, r.Choice.GetMode())
}

// What cannot change an answer, and what says no more than the default, is passed over.
func TestWhatChangesNoAnswerIsPassedOver(t *testing.T) {
	t.Parallel()
	for _, member := range []string{
		`"user":"u"`, `"metadata":{"a":"b"}`, `"store":true`, `"service_tier":"flex"`, `"prompt_cache_key":"k"`, `"truncation":"auto"`, `"text":{"format":{"type":"text"}}`,
		`"text":null`, `"reasoning":null`, `"previous_response_id":null`, `"background":false`, `"tools":null`, `"tool_choice":null`, `"a_member_of_tomorrow":{"x":[1]}`,
	} {
		_, err := openairesponses.Codec{}.ParseRequest([]byte(`{"model":"m","input":"q",` + member + `}`))
		require.NoError(t, err, member)
	}
}

func TestWhatARequestMustNotSayIsNamed(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`[]`:                       "no JSON object",
		`{"input":"q"}`:            "model: is required",
		`{"model":"m"}`:            "input: is required",
		`{"model":5,"input":"q"}`:  "model: must not be a number",
		`{"model":"m","input":7}`:  "input: is neither a text nor a list of items",
		`{"model":"m","input":[]}`: "input: needs at least one item",
		`{"model":"m","input":[{"role":"critic","content":"x"}]}`:                                                                                                                                     "input[0].role",
		`{"model":"m","input":[{"role":"user"}]}`:                                                                                                                                                     "input[0].content: is required",
		`{"model":"m","input":[{"role":"user","content":[{"type":"scent"}]}]}`:                                                                                                                        "input[0].content[0].type",
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"ftp://x.example/a.png"}]}]}`:                                                                              "input[0].content[0].image_url: is neither data:",
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]}`:                                                                                                    "input[0].content[0].image_url: is required",
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,aGk=","detail":"x"}]}]}`:                                                            "input[0].content[0].detail",
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_url":"file:///etc/passwd"}]}]}`:                                                                                   "input[0].content[0].file_url: is neither data:",
		`{"model":"m","input":[{"type":"image_generation_call","result":"no!"}]}`:                                                                                                                     "input[0].result: is not in base64",
		`{"model":"m","input":[{"type":"function_call","call_id":"c"}]}`:                                                                                                                              "input[0].name",
		`{"model":"m","input":[{"type":"function_call","name":"f"}]}`:                                                                                                                                 "input[0].call_id",
		`{"model":"m","input":[{"type":"function_call_output","call_id":"c"}]}`:                                                                                                                       "input[0].output: is required",
		`{"model":"m","input":"q","tools":[{"type":"file_search"}],"tool_choice":"required"}`:                                                                                                         "tool_choice",
		`{"model":"m","input":"q","tools":[{"type":"web_search","filters":{"allowed_domains":"a"}}]}`:                                                                                                 "tools[0].filters.allowed_domains: must not be a string",
		`{"model":"m","input":"q","tools":[{"type":"mcp","server_url":"https://m.example","require_approval":"never"}]}`:                                                                              "tools[0].server_label: is required",
		`{"model":"m","input":[{"type":"compaction"}]}`:                                                                                                                                               "input[0].encrypted_content: is required",
		`{"model":"m","input":[{"type":"computer_call"}]}`:                                                                                                                                            "input: has no item that is known here",
		`{"model":"m","input":[{"type":"compaction_trigger"}]}`:                                                                                                                                       "input: has no item that is known here",
		`{"model":"m","input":"q","tools":[{"type":"namespace","name":"a","tools":{}}]}`:                                                                                                              "tools[0].tools: is no list of tools",
		`{"model":"m","input":"q","tools":[{"type":"function","name":"f"},{"type":"function","name":"f","description":"another"}]}`:                                                                   "tools[1].name",
		`{"model":"m","input":[{"role":"user","content":"q"},{"type":"additional_tools","tools":[{"type":"function","name":"f","description":"another"}]}],"tools":[{"type":"function","name":"f"}]}`: "input[1].tools[0].name",
		`{"model":"m","input":"q","tools":[{"type":"function","name":"f"},{"type":"custom","name":"f"}]}`:                                                                                             "tools[1].name",
		`{"model":"m","input":"q","tools":[{"type":"function"}]}`:                                                                                                                                     "tools[0].name",
		`{"model":"m","input":"q","tool_choice":"any"}`:                                                                                                                                               "tool_choice",
		`{"model":"m","input":"q","tool_choice":{"type":"allowed_tools"}}`:                                                                                                                            "tool_choice",
		`{"model":"m","input":"q","max_output_tokens":0}`:                                                                                                                                             "max_output_tokens",
		`{"model":"m","input":"q","background":true}`:                                                                                                                                                 "background",
		`{"model":"m","input":"q","prompt":{"id":"p"}}`:                                                                                                                                               "prompt",
		`{"model":"m","input":"q","text":{"format":{"type":"jsonobject"}}}`:                                                                                                                           "json_schema",
		`{"model":"m","input":"q","text":{"format":{"type":"grammar"}}}`:                                                                                                                              "text.format.type",
		`{"model":"m","input":"q","text":{"format":{"type":"json_schema"}}}`:                                                                                                                          "text.format",
	} {
		_, err := openairesponses.Codec{}.ParseRequest([]byte(body))
		var said *dialect.RequestError
		require.ErrorAs(t, err, &said, body)
		assert.ErrorContains(t, err, want, body)
	}
	for _, body := range []string{
		`{"model":"m","input":"q","previous_response_id":"resp_0"}`, `{"model":"m","input":"q","conversation":"conv_1"}`, `{"model":"m","input":[{"type":"item_reference","id":"x"}]}`,
	} {
		_, err := openairesponses.Codec{}.ParseRequest([]byte(body))
		var said *dialect.RequestError
		require.ErrorAs(t, err, &said, body)
		assert.Equal(t, dialect.NoThreads, said.Cause, body)
	}
}

// reasonings are kinds of reasoning, of OpenAI's models and of others.
func reasonings() map[string]*contentv1.Content {
	part := func(internal string, r *contentv1.Reasoning) *contentv1.Content {
		return &contentv1.Content{InternalJson: internal, Part: &contentv1.Content_Reasoning{Reasoning: r}}
	}
	return map[string]*contentv1.Content{
		"sealed by OpenAI":         part("", &contentv1.Reasoning{Reasoning: "ZW5j", Summary: new("short"), Signature: new("rs_1"), Redacted: true}),
		"a summary of OpenAI's":    part("", &contentv1.Reasoning{Summary: new("short"), Signature: new("rs_1")}),
		"sealed by another vendor": part(`{"a": 1}`, &contentv1.Reasoning{Reasoning: "c2ln", Summary: new("short"), Redacted: true}),
		"signed":                   part("", &contentv1.Reasoning{Reasoning: "thought", Signature: new("sig==")}),
		"open":                     chat.ReasoningPart("thought"),
	}
}

// What a provider needs to take reasoning again survives a client that sends the items back.
func TestReasoningSurvivesAClient(t *testing.T) {
	t.Parallel()
	for name, part := range reasonings() {
		m := chat.Assistant("")
		m.Content = chat.ListContent(part, chat.TextPart("So."))
		output := chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_STOP)
		body, err := openairesponses.Codec{}.AppendResponse(nil, output, meta)
		require.NoError(t, err, name)
		assert.Regexp(t, `"summary":\[\{"type":"summary_text","text":"(short|thought)"\}\]`, string(body), "%s: a client can show it", name)
		assert.True(t, proto.Equal(part, sentBack(t, body)), name)

		var wire bytes.Buffer
		w := openairesponses.Codec{}.NewStreamWriter(&wire, meta)
		require.NoError(t, w.Write(dialect.ReasoningDelta("sho")))
		require.NoError(t, w.Write(dialect.PartDelta(part)))
		require.NoError(t, w.Write(dialect.TextDelta("So.")))
		require.NoError(t, w.Close(output))
		data := regexp.MustCompile(`(?m)^event: response\.completed\ndata: (.*)$`).FindStringSubmatch(wire.String())
		require.NotNil(t, data, name)
		var last struct{ Response json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(data[1]), &last))
		assert.True(t, proto.Equal(part, sentBack(t, last.Response)), "%s, streamed", name)
	}
}

// sentBack is the first part of an answer that a client has sent back.
func sentBack(t *testing.T, answer []byte) *contentv1.Content {
	t.Helper()
	var whole struct{ Output json.RawMessage }
	require.NoError(t, json.Unmarshal(answer, &whole))
	r, err := openairesponses.Codec{}.ParseRequest([]byte(`{"model":"m","input":` + string(whole.Output) + `}`))
	require.NoError(t, err)
	require.Len(t, r.Messages, 1)
	return r.Messages[0].GetContent().GetList().GetParts()[0]
}

func TestAnAnswersItems(t *testing.T) {
	t.Parallel()
	m := chat.Assistant("", chat.Call("c1", "f", ""))
	phased := chat.TextPart("Well.")
	phased.InternalJson = `{"message_id":"msg_7","message_phase":"commentary"}`
	m.Content = chat.ListContent(
		phased, &contentv1.Content{Part: &contentv1.Content_Text{Text: &contentv1.Text{Text: "No.", Refusal: new(true)}}}, chat.ImagePart("data:image/webp;base64,aGk="),
		chat.ImagePart("https://x.example/a.png"),
	)
	output := chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_MAX_TOKENS)
	output.Choices[0].Logprobs = &modelv1.Logprobs{Content: []*modelv1.Logprob{{Token: "W", Logprob: -1, Bytes: []int32{87}}}}
	const want = `[{"id":"msg_7","type":"message","status":"completed","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"Well.","annotations":[],
			"logprobs":[{"token":"W","logprob":-1,"bytes":[87],"top_logprobs":[]}]}]},
		{"id":"ID","type":"message","status":"completed","role":"assistant","content":[{"type":"refusal","refusal":"No."}]},
		{"id":"ID","type":"image_generation_call","status":"completed","output_format":"webp","result":"aGk="},
		{"id":"ID","type":"function_call","status":"incomplete","call_id":"c1","name":"f","arguments":"{}"}]`
	ids := regexp.MustCompile(`"id":"(msg|ig|fc)_[^"]{8,}"`)
	body, err := openairesponses.Codec{}.AppendResponse(nil, output, meta)
	require.NoError(t, err)
	var wire bytes.Buffer
	require.NoError(t, openairesponses.Codec{}.NewStreamWriter(&wire, meta).Close(output))
	_, last, _ := strings.Cut(wire.String(), "event: response.incomplete\ndata: ")
	for name, document := range map[string]string{"whole": `{"response":` + string(body) + `}`, "streamed": last} {
		var got struct {
			Response struct {
				Output     json.RawMessage
				Status     string
				Incomplete struct{ Reason string } `json:"incomplete_details"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(document), &got), name)
		items := ids.ReplaceAllString(string(got.Response.Output), `"id":"ID"`)
		assert.JSONEq(t, strings.ReplaceAll(want, "msg_7", "ID"), strings.ReplaceAll(items, "msg_7", "ID"), name)
		assert.Equal(t, []string{"incomplete", "max_output_tokens"}, []string{got.Response.Status, got.Response.Incomplete.Reason}, name)
	}
}

// Clients require every count of tokens, known or not.
func TestTheUsageOfAnAnswerIsWhole(t *testing.T) {
	t.Parallel()
	output := chat.MessageOutput("m", chat.Assistant("a"), modelv1.StopReason_STOP_REASON_STOP)
	output.Usage = &modelv1.ModelUsage{InputTokens: 1, OutputTokens: 2, TotalTokens: 3}
	body, err := openairesponses.Codec{}.AppendResponse(nil, output, meta)
	require.NoError(t, err)
	assert.Contains(t, string(body), `"usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":3}`)
}

// Reasoning that was sealed by the vendor has one id in all events, which is the vendor's where it is known in time.
func TestReasoningHasOneID(t *testing.T) {
	t.Parallel()
	part := reasonings()["sealed by OpenAI"]
	m := chat.Assistant("")
	m.Content = chat.ListContent(part)
	for name, pieces := range map[string][]*modelv1.GenerateDelta{
		"whole": {dialect.PartDelta(part)}, "begun": {dialect.ReasoningDelta("sho"), dialect.PartDelta(part)}, "at the end": nil,
	} {
		var wire bytes.Buffer
		w := openairesponses.Codec{}.NewStreamWriter(&wire, meta)
		for _, d := range pieces {
			require.NoError(t, w.Write(d))
		}
		require.NoError(t, w.Close(chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_STOP)))
		ids := map[string]bool{}
		for _, match := range regexp.MustCompile(`"(?:item_)?id":"(rs_[^"]*)"`).FindAllStringSubmatch(wire.String(), -1) {
			ids[match[1]] = true
		}
		assert.Len(t, ids, 1, "%s: %v", name, ids)
		assert.Equal(t, name != "begun", ids["rs_1"], "%s: %v", name, ids)
	}
}

// Clients that build on events need them in this order, numbered, with the places of items and parts.
func TestTheEventsOfAStream(t *testing.T) {
	t.Parallel()
	m := chat.Assistant("", chat.Call("c1", "f", `{"a":1}`), chat.Call("c2", "g", "{}"))
	m.Content = chat.ListContent(chat.ReasoningPart("hm"), chat.TextPart("So."))
	var wire bytes.Buffer
	w := openairesponses.Codec{}.NewStreamWriter(&wire, meta)
	for _, d := range []*modelv1.GenerateDelta{
		dialect.ReasoningDelta("hm"), dialect.TextDelta("So"), dialect.TextDelta("."), dialect.CallDelta(&modelv1.ToolCallDelta{Id: "c1", Function: "f"}),
		dialect.CallDelta(&modelv1.ToolCallDelta{Index: 1, Id: "c2", Function: "g"}), dialect.CallDelta(&modelv1.ToolCallDelta{Arguments: `{"a":1}`}),
	} {
		require.NoError(t, w.Write(d))
	}
	require.NoError(t, w.Close(chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_TOOL_CALLS)))
	var kinds []string
	sequence := 0
	for event, err := range (openairesponses.Codec{}).ReadEvents(&wire) {
		require.NoError(t, err)
		var e struct {
			Type     string
			Sequence int  `json:"sequence_number"`
			Place    *int `json:"output_index"`
		}
		require.NoError(t, json.Unmarshal(event.Data, &e))
		assert.Equal(t, event.Type, e.Type)
		assert.Equal(t, sequence, e.Sequence)
		sequence++
		kind := strings.TrimPrefix(e.Type, "response.")
		if e.Place != nil {
			kind += " " + string(rune('0'+*e.Place))
		}
		kinds = append(kinds, kind)
	}
	assert.Equal(t, []string{
		"created", "in_progress",
		"output_item.added 0", "reasoning_summary_part.added 0", "reasoning_summary_text.delta 0", "reasoning_summary_text.done 0", "reasoning_summary_part.done 0", "output_item.done 0",
		"output_item.added 1", "content_part.added 1", "output_text.delta 1", "output_text.delta 1", "output_text.done 1", "content_part.done 1", "output_item.done 1",
		"output_item.added 2", "output_item.added 3", "function_call_arguments.delta 2", "function_call_arguments.delta 3",
		"function_call_arguments.done 2", "output_item.done 2", "function_call_arguments.done 3", "output_item.done 3", "completed",
	}, kinds)
}

// Pieces that alternate are items of their own, each what it was.
func TestPiecesThatAlternate(t *testing.T) {
	t.Parallel()
	m := chat.Assistant("")
	m.Content = chat.ListContent(chat.TextPart("hm"), chat.ReasoningPart("hm"))
	var wire bytes.Buffer
	w := openairesponses.Codec{}.NewStreamWriter(&wire, meta)
	require.NoError(t, w.Write(dialect.TextDelta("hm")))
	require.NoError(t, w.Write(dialect.ReasoningDelta("hm")))
	require.NoError(t, w.Close(chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_STOP)))
	_, last, _ := strings.Cut(wire.String(), "event: response.completed\ndata: ")
	assert.Less(t, strings.Index(last, `"type":"message"`), strings.Index(last, `"type":"reasoning"`))
	assert.Equal(t, 1, strings.Count(last, `"type":"message"`))
}

func TestErrorsReadBack(t *testing.T) {
	t.Parallel()
	for _, f := range []dialect.Failure{
		{Status: http.StatusTooManyRequests}, {Status: http.StatusTooManyRequests, Cause: dialect.QuotaSpent}, {Status: http.StatusBadRequest, Cause: dialect.TooLong, Param: "input"}, {Status: http.StatusBadGateway},
	} {
		f.Message = "m"
		var wire bytes.Buffer
		require.NoError(t, openairesponses.Codec{}.NewStreamWriter(&wire, meta).Fail(f))
		for event, err := range (openairesponses.Codec{}).ReadEvents(&wire) {
			require.NoError(t, err)
			said := openairesponses.Codec{}.DecodeError(event.Data)
			body := openairesponses.Codec{}.DecodeError(openairesponses.Codec{}.AppendError(nil, f))
			assert.Equal(t, []string{"m", f.Param}, []string{said.Message, said.Param})
			if f.Status != http.StatusBadGateway {
				assert.Equal(t, body.Code, said.Code)
				assert.Equal(t, body.Status, said.Status)
				if f.Status == http.StatusTooManyRequests {
					assert.Equal(t, f.Status, said.Status, "%+v", f)
				}
			} else {
				assert.Equal(t, http.StatusInternalServerError, said.Status)
			}
		}
	}
	assert.Equal(t, "input", openairesponses.Codec{}.TooLong("too long").Param)
}

// Items and tools that are not known are passed over, whatever their members are: clients are ahead of everybody.
func TestWhatIsNotKnownIsPassedOver(t *testing.T) {
	t.Parallel()
	for _, unknown := range []string{
		`{"type":"local_shell_call","call_id":"l1","action":{"type":"exec","command":["ls"]}}`, `{"type":"local_shell_call_output","id":"l1","output":"a"}`, `{"type":"computer_call"}`,
		`{"type":"item_of_tomorrow","role":5,"content":{"a":1},"name":["x"],"output":7,"tools":"none"}`, `{"type":"web_search_call","id":"ws_1","status":"completed","action":{}}`,
	} {
		r, err := openairesponses.Codec{}.ParseRequest([]byte(`{"model":"m","input":[{"role":"user","content":"q"},` + unknown + `]}`))
		require.NoError(t, err, unknown)
		assert.Len(t, r.Messages, 1, unknown)
	}
	for _, unknown := range []string{
		`{"type":"tool_of_tomorrow","name":{"a":1},"tools":5,"format":"text","parameters":7}`, `{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"b","tools":5}]}`,
		`{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}`,
	} {
		r, err := openairesponses.Codec{}.ParseRequest([]byte(`{"model":"m","input":"q","tools":[{"type":"function","name":"f"},` + unknown + `]}`))
		require.NoError(t, err, unknown)
		assert.Len(t, r.Tools, 1, unknown)
	}
}

// The names of tools do not depend on their order: those without a namespace keep theirs, and the others have free
// ones.
func TestToolsOfOneNameAreToldApart(t *testing.T) {
	t.Parallel()
	function := func(name string) string { return `{"type":"function","name":"` + name + `"}` }
	space := func(name string, tools ...string) string {
		return `{"type":"namespace","name":"` + name + `","tools":[` + strings.Join(tools, ",") + `]}`
	}
	for _, tt := range []struct {
		tools []string
		want  []string
	}{
		{[]string{space("mcp__x", function("read")), function("read")}, []string{"mcp__x__read", "read"}},
		{[]string{function("read"), space("mcp__x", function("read"))}, []string{"read", "mcp__x__read"}},
		{[]string{function("a"), space("n", function("a")), function("n__a")}, []string{"a", "n__a_2", "n__a"}},
		{[]string{function("a"), function("n__a"), function("n__a_2"), space("n", function("a"))}, []string{"a", "n__a", "n__a_2", "n__a_3"}},
		{[]string{space("m", function("a")), space("n", function("a"))}, []string{"a", "n__a"}},
		{[]string{function("a"), function("a"), space("n", function("b")), space("n", function("b"))}, []string{"a", "b"}},
	} {
		r, err := openairesponses.Codec{}.ParseRequest([]byte(`{"model":"m","input":"q","tools":[` + strings.Join(tt.tools, ",") + `]}`))
		require.NoError(t, err, tt.tools)
		var names []string
		for _, tool := range r.Tools {
			names = append(names, tool.GetName())
		}
		assert.Equal(t, tt.want, names, tt.tools)
	}
}

// The work for tools grows with their number, not with its square: this takes minutes if each is searched for among
// all.
func TestVeryManyToolsAreAnswered(t *testing.T) {
	t.Parallel()
	var tools strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&tools, `,{"type":"custom","name":"a%08d"}`, i)
	}
	waittest.Return(t, func() {
		r, err := openairesponses.Codec{}.ParseRequest([]byte(`{"model":"m","input":"q","tools":[` + tools.String()[1:] + `]}`))
		if !assert.NoError(t, err) {
			return
		}
		w := openairesponses.Codec{}.NewStreamWriter(io.Discard, dialect.ResponseMeta{Request: r})
		assert.NoError(t, w.Close(chat.MessageOutput("m", chat.Assistant("a"), modelv1.StopReason_STOP_REASON_STOP)))
	}, "an answer to a request of very many tools")
}

// eventsOf are the events of a stream, by type; of each type the last.
func eventsOf(t *testing.T, wire io.Reader) map[string]string {
	t.Helper()
	all := map[string]string{}
	for event, err := range (openairesponses.Codec{}).ReadEvents(wire) {
		require.NoError(t, err)
		all[strings.TrimPrefix(event.Type, "response.")] = string(event.Data)
	}
	return all
}

// What was shown as a text stays one: that it is a refusal is known when it has been said.
func TestAStreamedRefusalIsOneThing(t *testing.T) {
	t.Parallel()
	m := chat.Assistant("")
	m.Content = chat.ListContent(&contentv1.Content{Part: &contentv1.Content_Text{Text: &contentv1.Text{Text: "No.", Refusal: new(true)}}})
	output := chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_STOP)
	for streamed, kind := range map[bool]string{true: `"type":"output_text"`, false: `"type":"refusal"`} {
		var wire bytes.Buffer
		w := openairesponses.Codec{}.NewStreamWriter(&wire, meta)
		if streamed {
			require.NoError(t, w.Write(dialect.TextDelta("No.")))
		}
		require.NoError(t, w.Close(output))
		events := eventsOf(t, &wire)
		for _, event := range []string{"content_part.added", "content_part.done", "output_item.done", "completed"} {
			assert.Contains(t, events[event], kind, "%s, streamed: %t", event, streamed)
		}
	}
	assert.True(t, chat.Parts(m.GetContent())[0].GetText().GetRefusal(), "the output is not changed")
}

// The last item of an answer that was cut off is not complete: a client would run a call that is.
func TestACutItemIsIncomplete(t *testing.T) {
	t.Parallel()
	text, call := chat.Assistant("So."), chat.Assistant("So.", chat.Call("c1", "f", `{"a":1}`), chat.Call("c2", "g", `{}`))
	for name, tt := range map[string]struct {
		m    *modelv1.ChatMessage
		want []string
	}{"a text": {text, []string{"incomplete"}}, "calls": {call, []string{"completed", "completed", "incomplete"}}} {
		output := chat.MessageOutput("m", tt.m, modelv1.StopReason_STOP_REASON_MAX_TOKENS)
		body, err := openairesponses.Codec{}.AppendResponse(nil, output, meta)
		require.NoError(t, err)
		answers := map[string]string{"whole": string(body)}
		for _, streamed := range []bool{true, false} {
			var wire bytes.Buffer
			w := openairesponses.Codec{}.NewStreamWriter(&wire, meta)
			if streamed {
				require.NoError(t, w.Write(dialect.TextDelta("So.")))
				for i, c := range tt.m.GetToolCalls() {
					require.NoError(t, w.Write(dialect.CallDelta(&modelv1.ToolCallDelta{Index: int32(i), Id: c.GetId(), Function: c.GetFunction()})))
				}
			}
			require.NoError(t, w.Close(output))
			events := eventsOf(t, &wire)
			assert.Contains(t, events["output_item.done"], `"status":"incomplete"`, name)
			var last struct{ Response json.RawMessage }
			require.NoError(t, json.Unmarshal([]byte(events["incomplete"]), &last))
			answers[fmt.Sprint("streamed ", streamed)] = string(last.Response)
		}
		for way, answer := range answers {
			var said struct{ Output []struct{ Status string } }
			require.NoError(t, json.Unmarshal([]byte(answer), &said))
			var got []string
			for _, item := range said.Output {
				got = append(got, item.Status)
			}
			assert.Equal(t, tt.want, got, "%s, %s", name, way)
		}
	}
}

// Clients require the likely tokens of a text in the event that ends it.
func TestTheEndOfATextHasItsTokens(t *testing.T) {
	t.Parallel()
	output := chat.MessageOutput("m", chat.Assistant("W"), modelv1.StopReason_STOP_REASON_STOP)
	for want, logprobs := range map[string]*modelv1.Logprobs{
		`"logprobs":[]`: nil, `"logprobs":[{"token":"W","logprob":-1,`: {Content: []*modelv1.Logprob{{Token: "W", Logprob: -1, Bytes: []int32{87}}}},
	} {
		output.Choices[0].Logprobs = logprobs
		var wire bytes.Buffer
		require.NoError(t, openairesponses.Codec{}.NewStreamWriter(&wire, meta).Close(output))
		events := eventsOf(t, &wire)
		assert.Contains(t, events["output_text.done"], want)
		assert.Contains(t, events["output_item.done"], want)
	}
}
