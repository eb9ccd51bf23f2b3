package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/enum"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
)

// recordedCall is a call in a case's form.
type recordedCall struct {
	ID         string          `json:"id"`
	Function   string          `json:"function"`
	Arguments  json.RawMessage `json:"arguments"`
	ParseError *string         `json:"parse_error"`
}

func (r recordedCall) proto() *toolv1.ToolCall {
	return &toolv1.ToolCall{Id: r.ID, Function: r.Function, ArgumentsJson: string(r.Arguments), ParseError: r.ParseError}
}

// TestGoldenExecution: the calls of one message in; messages, events and the order of starts and ends out. Every case
// runs without a key and with one, because stored results must equal streamed ones.
func TestGoldenExecution(t *testing.T) {
	t.Parallel()
	cases := goldentest.Load(t, "tools/results.json", "tools/errors.json", "tools/truncation.json", "tools/stages.json")
	goldentest.Run(t, "execution", cases, func(t *goldentest.T, c goldentest.Case) {
		for _, requestID := range []string{"", "run/7"} {
			t.Bubble(func(t *goldentest.T) {
				executeCase(t, c, requestID)
			})
		}
	})
}

func executeCase(t *goldentest.T, c goldentest.Case, requestID string) {
	var recorded struct {
		Tools     []any          `json:"tools"`
		Calls     []recordedCall `json:"calls"`
		MaxOutput *int64         `json:"max_output"`
		Config    struct {
			MaxToolOutput *int64 `json:"max_tool_output"`
		} `json:"config"`
		Metadata struct {
			FailFast []string `json:"tool_calls_fail_fast"`
		} `json:"metadata"`
	}
	if err := c.Decode(&recorded); err != nil {
		t.Fatal(err)
	}
	request := &toolv1.ExecuteToolsRequest{
		Parent:         parent,
		RequestId:      requestID,
		Tools:          scriptedRefs(t, recorded.Tools),
		MaxOutputBytes: recorded.Config.MaxToolOutput,
		FailFast:       recorded.Metadata.FailFast,
	}
	if recorded.MaxOutput != nil { // the batch's bound takes precedence over the settings
		request.MaxOutputBytes = recorded.MaxOutput
	}
	for i, call := range recorded.Calls {
		recorded.Calls[i].Arguments = expanded(t, call.Arguments)
		skipUnknownResult(t, recorded.Calls[i])
		request.Calls = append(request.Calls, recorded.Calls[i].proto())
	}

	s := newService(t, nil)
	out := &stream{ctx: t.Context()}
	if len(request.GetCalls()) > 0 { // a message without calls makes no request
		if err := s.ExecuteTools(request, out); err != nil {
			t.Fatal(err)
		}
	}

	want := maps.Clone(c.At("expect").(map[string]any))
	var options []match.Option
	if want["events_any_order"] == true {
		options = append(options, match.AnyOrder("events"))
	}
	delete(want, "events_any_order")
	got := recordedForm(request, out)
	if want["fatal"] != nil && got["fatal"] != nil { // only the fact that it ends the sample is compared
		got["fatal"] = want["fatal"]
		delete(got, "messages")
	}
	if want["timeline"] != nil {
		got["timeline"] = inOrder(s.timeline.notes, recorded.Calls)
		got["events"] = withoutSpans(got["events"].([]any))
	}
	t.Equal(want, got, options...)
}

// skipUnknownResult skips a case whose tool returns what the scripted tool cannot.
func skipUnknownResult(t *goldentest.T, call recordedCall) {
	var arguments struct{ Kind string }
	if call.Function != "give" || json.Unmarshal(call.Arguments, &arguments) != nil {
		return
	}
	if _, err := give(arguments.Kind); errors.Is(err, errUnknownResult) {
		t.Skipf("no result of kind %q", arguments.Kind)
	}
}

// expanded writes out the long texts of arguments. The order of the members stays.
func expanded(t *goldentest.T, arguments json.RawMessage) json.RawMessage {
	if !bytes.Contains(arguments, []byte(`"$`)) {
		return arguments
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(arguments))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	value, err := corpus.Expand(value)
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// scriptedRefs refers to the tools that a case names.
func scriptedRefs(t *goldentest.T, names []any) []*toolv1.ToolRef {
	var refs []*toolv1.ToolRef
	for _, name := range names {
		switch name := name.(type) {
		case map[string]any:
			for name, value := range name {
				if name != "big_with_max_output" {
					t.Skipf("no scripted tool %s", name)
				}
				refs = append(refs, &toolv1.ToolRef{Name: "big", OptionsJson: fmt.Sprintf(`{"max_output": %v}`, value)})
			}
		case string:
			switch name {
			case "two adds":
				refs = append(refs, &toolv1.ToolRef{Name: "add"}, &toolv1.ToolRef{Name: "second_add", Rename: "add"})
			case "add", "note", "fail", "give", "big", "slow_parallel", "slow_serial":
				refs = append(refs, &toolv1.ToolRef{Name: name})
			default:
				t.Skipf("no scripted tool %s", name)
			}
		}
	}
	return refs
}

// recordedForm converts a stream into the recorded form: the messages in the order of the calls, and the events that
// would be journaled.
func recordedForm(request *toolv1.ExecuteToolsRequest, out *stream) map[string]any {
	got := map[string]any{"sample": map[string]any{"status": "success"}}
	begun, results := map[int]bool{}, map[int]*toolv1.ToolResult{}
	over := false
	for _, event := range out.events {
		if started := event.GetStarted(); started != nil {
			begun[int(started.GetIndex())] = true
		}
		if result := event.GetResult(); result != nil {
			results[int(result.GetIndex())] = result
			over = over || result.GetFailure() != nil
		}
	}
	messages, events := []any{}, []any{}
	for i, call := range request.GetCalls() {
		result := results[i]
		if result == nil {
			continue
		}
		messages = append(messages, messageForm(result))
		if begun[i] {
			events = append(events, map[string]any{"event": "span_begin", "type": "tool", "name": call.GetFunction()})
		}
		events = append(events, eventForm(call, result, over && begun[i]))
		for _, note := range result.GetNotes() {
			events = append(events, map[string]any{"event": "info", "data": note})
		}
		if result.GetFailure() != nil {
			got["fatal"] = result.GetFailure().GetMessage()
			got["sample"] = map[string]any{"status": "error"}
		}
	}
	got["messages"], got["events"] = messages, events
	return got
}

// inOrder sorts simultaneous starts, which have no order, into the order of the calls.
func inOrder(notes [][]string, calls []recordedCall) [][]string {
	position := func(note []string) int {
		return slices.IndexFunc(calls, func(call recordedCall) bool {
			var arguments slowArguments
			return json.Unmarshal(call.Arguments, &arguments) == nil && arguments.Tag == note[1]
		})
	}
	notes = slices.Clone(notes)
	for i := 0; i < len(notes); i++ {
		end := i
		for end < len(notes) && notes[end][0] == "start" {
			end++
		}
		slices.SortFunc(notes[i:end], func(a, b []string) int { return position(a) - position(b) })
		i = max(i, end-1)
	}
	return notes
}

func withoutSpans(events []any) []any {
	kept := []any{}
	for _, event := range events {
		if event.(map[string]any)["event"] != "span_begin" {
			kept = append(kept, event)
		}
	}
	return kept
}

func messageForm(result *toolv1.ToolResult) map[string]any {
	message := map[string]any{
		"role":         "tool",
		"content":      contentForm(result.GetContent()),
		"tool_call_id": result.GetCallId(),
		"function":     result.GetFunction(),
	}
	if fault := result.GetError(); fault != nil {
		message["error"] = errorForm(fault)
	}
	return message
}

// eventForm is the tool event of a call. A call is recorded as failed when it ended the sample, or had begun and was
// stopped by the one that did.
func eventForm(call *toolv1.ToolCall, result *toolv1.ToolResult, over bool) map[string]any {
	event := map[string]any{
		"event":     "tool",
		"id":        call.GetId(),
		"function":  call.GetFunction(),
		"arguments": json.RawMessage(call.GetArgumentsJson()),
	}
	if fault := result.GetError(); fault != nil {
		event["error"] = errorForm(fault)["type"]
	}
	if cut := result.GetTruncation(); cut != nil {
		event["truncated"] = []any{cut.GetRawBytes(), cut.GetLimitBytes()}
	}
	cancelled := result.GetError().GetType() == toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED
	if result.GetFailure() != nil || (over && cancelled) {
		event["failed"] = true
	}
	return event
}

func contentForm(content *contentv1.MessageContent) any {
	if content.GetList() == nil {
		return content.GetText()
	}
	parts := []any{}
	for _, part := range content.GetList().GetParts() {
		parts = append(parts, partForm(part))
	}
	return parts
}

func partForm(part *contentv1.Content) map[string]any {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		form := map[string]any{"type": "text", "text": p.Text.GetText()}
		var citations []any
		for _, citation := range p.Text.GetCitations() {
			citations = append(citations, map[string]any{
				"type": "url", "url": citation.GetUrl(), "title": citation.GetTitle(), "cited_text": citation.GetCitedText(),
			})
		}
		if citations != nil {
			form["citations"] = citations
		}
		return form
	case *contentv1.Content_Image:
		return map[string]any{"type": "image", "image": p.Image.GetMedia().GetUri(), "detail": enum.Word(p.Image.GetDetail())}
	case *contentv1.Content_Audio:
		return map[string]any{"type": "audio", "audio": p.Audio.GetMedia().GetUri(), "format": enum.Word(p.Audio.GetFormat())}
	case *contentv1.Content_Video:
		return map[string]any{"type": "video", "video": p.Video.GetMedia().GetUri(), "format": enum.Word(p.Video.GetFormat())}
	case *contentv1.Content_Document:
		return map[string]any{
			"type": "document", "document": p.Document.GetMedia().GetUri(), "filename": p.Document.GetFilename(),
			"mime_type": p.Document.GetMimeType(), "citations": p.Document.GetCitations(),
		}
	default:
		return map[string]any{"type": "unknown"}
	}
}
