// Package emulate lets models call tools whose servers know none: the schemas of tools are in a prompt, calls are texts
// between tags, and results are messages of the user.
package emulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Request returns a request without tools, whose messages express the tools, their calls and their results. It copies
// what it changes. Pieces of the answer are not passed on if tools are on offer: a call is not recognised before its
// end.
func Request(r *provider.Request) *provider.Request {
	sent := *r
	sent.Tools, sent.ToolChoice, sent.Messages = nil, nil, nil
	if len(r.Tools) > 0 {
		sent.Messages, sent.Stream = append(sent.Messages, chat.System(prompt(r.Tools))), nil
	}
	for _, m := range r.Messages {
		switch m.GetRole() { //nolint:exhaustive // The others are sent as they are.
		case modelv1.Role_ROLE_ASSISTANT:
			m = said(m)
		case modelv1.Role_ROLE_TOOL:
			m = result(m)
		}
		sent.Messages = append(sent.Messages, m)
	}
	return &sent
}

// prompt describes the tools. Models know this form of calls.
func prompt(tools []*toolv1.ToolInfo) string {
	var b strings.Builder
	b.WriteString(`
            These functions can be called. Call one if it helps with the request; otherwise answer in plain text and do not mention the functions. A call is a JSON object with the function's name and its arguments, between tags:

<tool_call>
{"name": <name of the function>, "arguments": <object of arguments>}
</tool_call>

The functions, each with the JSON Schema of its arguments:

<tools>
`)
	for i, tool := range tools {
		if i > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(described(tool))
	}
	b.WriteString(`
</tools>

Use the names of functions exactly as they are written, and give all required arguments. Make one call at a time, as the last thing in the message, with its closing tag; an explanation may precede it.
`)
	return b.String()
}

// described is a tool as indented JSON.
func described(tool *toolv1.ToolInfo) string {
	w := jsonwrite.Append(nil, 256+len(tool.GetParametersJson()))
	w.BeginObject()
	w.TextMember("name", tool.GetName())
	w.TextMember("description", tool.GetDescription())
	w.RawUnlessEmpty("parameters", tool.GetParametersJson())
	w.EndObject()
	var b bytes.Buffer
	if json.Indent(&b, w.Bytes(), "", "  ") != nil {
		return string(w.Bytes())
	}
	return b.String()
}

// untagged replaces tags within texts of JSON by the same in other letters, so that a call ends with its own tag.
var untagged = strings.NewReplacer("</tool_call", `\u003c/tool_call`)

// said is a message of the model with its calls in its text, without its reasoning: models whose tools are in a prompt
// think anew in each turn. What takes the place of earlier messages stays, for the dialect to refuse.
func said(m *modelv1.ChatMessage) *modelv1.ChatMessage {
	if slices.ContainsFunc(m.GetContent().GetList().GetParts(), dialect.IsCompaction) {
		return m
	}
	if len(m.GetToolCalls()) == 0 {
		return &modelv1.ChatMessage{Role: m.GetRole(), Content: chat.TextContent(chat.Text(m))}
	}
	texts := []string{chat.Text(m)}
	for _, call := range m.GetToolCalls() {
		texts = append(texts, fmt.Sprintf(`<tool_call>{"name": %s, "arguments": %s }</tool_call>`, jsonwrite.AppendText(nil, call.GetFunction()), untagged.Replace(spaced(dialect.ArgumentsOf(call)))))
	}
	return &modelv1.ChatMessage{Role: m.GetRole(), Content: chat.TextContent(strings.TrimSpace(strings.Join(texts, "\n\n")))}
}

// reasoned is a content of the reasoning of a message, and a text.
func reasoned(m *modelv1.ChatMessage, text string) *contentv1.MessageContent {
	var parts []*contentv1.Content
	for _, part := range m.GetContent().GetList().GetParts() {
		if part.GetReasoning() != nil {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return chat.TextContent(text)
	}
	return chat.ListContent(append(parts, chat.TextPart(text))...)
}

// spaced is JSON with a blank after each colon and comma, as models write it.
func spaced(document string) string {
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(document)) != nil {
		return document
	}
	var b strings.Builder
	within, escaped := false, false
	for _, c := range compact.Bytes() {
		b.WriteByte(c)
		switch {
		case escaped:
			escaped = false
		case within && c == '\\':
			escaped = true
		case c == '"':
			within = !within
		case !within && (c == ':' || c == ','):
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// result is a tool's result as a message of the user.
func result(m *modelv1.ChatMessage) *modelv1.ChatMessage {
	return chat.User(fmt.Sprintf("The function %q was called. It returned:\n\n%s", m.GetFunction(), chat.ResultText(m)))
}

// opening and closing are the tags of a call; header is a token that some models write into their text.
var (
	opening = regexp.MustCompile(`<tool_calls?>`)
	closing = regexp.MustCompile(`</tool_calls?>`)
	header  = strings.NewReplacer("<|start_header_id|>assistant<|end_header_id|>", "")
)

// Read replaces the calls in the texts of an answer by calls of tools, for which the answer then ended. model is the
// name that the messages then have. An answer that calls tools itself, or that has no calls, stays as it is.
func Read(output *modelv1.ModelOutput, tools []*toolv1.ToolInfo, model string) {
	for _, choice := range output.GetChoices() {
		m := choice.GetMessage()
		if len(m.GetToolCalls()) > 0 {
			continue
		}
		calls, rest := split(chat.Text(m))
		if len(calls) == 0 {
			continue
		}
		for _, text := range calls {
			m.ToolCalls = append(m.ToolCalls, call(text, tools))
		}
		m.Content, m.Model = reasoned(m, header.Replace(strings.Join(rest, "\n\n"))), model
		if choice.GetStopReason() == modelv1.StopReason_STOP_REASON_STOP {
			choice.StopReason = modelv1.StopReason_STOP_REASON_TOOL_CALLS
		}
	}
	output.Completion = ""
	chat.CompleteOutput(output)
}

// split returns what is between the tags of calls, and the texts around them. A call without a closing tag is text.
func split(text string) (calls, rest []string) {
	for {
		begin := opening.FindStringIndex(text)
		if begin == nil {
			break
		}
		inner := text[begin[1]:]
		document := documentLength(inner)
		end := closing.FindStringIndex(inner[document:])
		if end == nil {
			break
		}
		calls, rest = append(calls, inner[:document+end[0]]), append(rest, text[:begin[0]])
		text = inner[document+end[1]:]
	}
	rest = append(rest, text)
	for i := range rest {
		rest[i] = strings.TrimSpace(rest[i])
	}
	return calls, slices.DeleteFunc(rest, func(piece string) bool { return piece == "" })
}

// documentLength is the length of the JSON document with which a text begins, whose texts may contain tags; 0 if there
// is none.
func documentLength(text string) int {
	var document json.RawMessage
	d := json.NewDecoder(strings.NewReader(text))
	if d.Decode(&document) != nil {
		return 0
	}
	return int(d.InputOffset())
}

// unknown is the name of a call that cannot be read; its ParseError tells the model why.
const unknown = "unknown"

// call reads a call.
func call(text string, tools []*toolv1.ToolInfo) *toolv1.ToolCall {
	var c struct {
		Name      string            `json:"name"`
		Arguments dialect.Arguments `json:"arguments"`
	}
	var given map[string]json.RawMessage
	var fault string
	switch err := jsonread.Unmarshal([]byte(text), &c); {
	case err != nil:
		fault = "the call is no JSON object with a name and arguments: " + err.Error()
	case json.Unmarshal([]byte(text), &given) != nil, c.Name == "", !jsonread.IsSet(given["arguments"]):
		fault = "the call needs a name and arguments"
	default:
		return dialect.ToolCall(c.Name+"_"+chat.NewID(), c.Name, string(c.Arguments), tools)
	}
	return &toolv1.ToolCall{
		Id: unknown, Function: unknown, ArgumentsJson: "{}", ParseError: new(fault + "\n\n" + text), Type: toolv1.ToolCallType_TOOL_CALL_TYPE_FUNCTION,
	}
}
