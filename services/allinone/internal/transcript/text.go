package transcript

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/allinone/internal/printable"
)

// A long text keeps so many lines of its head and tail.
const (
	headLines = 40
	tailLines = 20
)

// heading begins a part: what it is, and notes about it.
func (w *Writer) heading(what string, notes ...string) {
	line := what
	for _, n := range notes {
		if n != "" {
			line += " · " + n
		}
	}
	line = printable.Line(line)
	if w.options.Color {
		what, rest, _ := strings.Cut(line, " · ")
		line = "\x1b[1;36m" + what + "\x1b[0m"
		if rest != "" {
			line += "\x1b[2m · " + rest + "\x1b[0m"
		}
	}
	fmt.Fprintf(w.out, "\n■ %s\n", line)
}

// body writes text below a heading, indented; an empty one writes nothing.
func (w *Writer) body(text string) {
	text = strings.TrimRight(printable.Text(text), "\n ")
	if text == "" {
		return
	}
	lines := strings.Split(text, "\n")
	if cut := len(lines) - headLines - tailLines; cut > 1 && !w.options.Full {
		kept := append([]string{}, lines[:headLines]...)
		kept = append(kept, fmt.Sprintf("… %d lines more; --full shows them …", cut))
		lines = append(kept, lines[len(lines)-tailLines:]...)
	}
	for _, line := range lines {
		fmt.Fprintln(w.out, strings.TrimRight("  "+line, " "))
	}
}

// call writes a tool call: its arguments by name, texts of several lines as they are.
func (w *Writer) call(c *toolv1.ToolCall) {
	w.body("→ " + c.GetFunction())
	if c.GetParseError() != "" {
		w.body("  cannot be read: " + c.GetParseError())
	}
	args, err := orderedjson.DecodeObject([]byte(orEmptyObject(c.GetArgumentsJson())))
	if err != nil {
		w.body("  " + c.GetArgumentsJson())
		return
	}
	for name, value := range args.All() {
		text, isText := value.(string)
		if !isText {
			text = string(orderedjson.Append(nil, value))
		}
		w.body(strings.ReplaceAll("\n"+labelled(name, text), "\n", "\n  ")[1:])
	}
}

// labelled writes a value behind its name; one of several lines stands below it, further to the right.
func labelled(name, text string) string {
	text = strings.TrimRight(text, "\n")
	if !strings.Contains(text, "\n") {
		return name + ": " + text
	}
	return name + ":\n  " + strings.ReplaceAll(text, "\n", "\n  ")
}

// contentText is what a message says, with placeholders for what is no text.
func contentText(c *contentv1.MessageContent) string {
	var parts []string
	for _, p := range chat.Parts(c) {
		switch part := p.GetPart().(type) {
		case *contentv1.Content_Text:
			parts = append(parts, part.Text.GetText())
		case *contentv1.Content_Reasoning:
			text := part.Reasoning.GetReasoning()
			if part.Reasoning.GetRedacted() {
				text = part.Reasoning.GetSummary()
			}
			parts = append(parts, "(reasoning) "+text)
		case *contentv1.Content_ToolUse:
			parts = append(parts, "(ran at the provider) "+part.ToolUse.GetName()+" "+part.ToolUse.GetArguments()+"\n"+part.ToolUse.GetResult())
		case *contentv1.Content_Image:
			parts = append(parts, "(image)")
		case *contentv1.Content_Audio:
			parts = append(parts, "(audio)")
		case *contentv1.Content_Video:
			parts = append(parts, "(video)")
		case *contentv1.Content_Document:
			parts = append(parts, "(document "+part.Document.GetFilename()+")")
		default:
			parts = append(parts, "(content of another kind)")
		}
	}
	return strings.Join(parts, "\n")
}

// ScoreText returns the text of a score's value.
func ScoreText(v *agentv1.ScoreValue) string {
	switch k := v.GetKind().(type) {
	case *agentv1.ScoreValue_Text:
		return k.Text
	case *agentv1.ScoreValue_Number:
		return strconv.FormatFloat(k.Number, 'g', 6, 64)
	case *agentv1.ScoreValue_Flag:
		return strconv.FormatBool(k.Flag)
	case *agentv1.ScoreValue_List:
		var values []string
		for _, v := range k.List.GetValues() {
			values = append(values, ScoreText(v))
		}
		return "[" + strings.Join(values, ", ") + "]"
	case *agentv1.ScoreValue_Map:
		var entries []string
		for _, e := range k.Map.GetEntries() {
			entries = append(entries, e.GetKey()+" "+ScoreText(e.GetValue()))
		}
		return strings.Join(entries, ", ")
	}
	return "–"
}

// RunStateText returns the word for a state.
func RunStateText(s agentv1.RunState) string {
	return enum.Word(s)
}

func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

func orEmptyObject(text string) string {
	if text == "" {
		return "{}"
	}
	return text
}

// unquoted is the text of a JSON string, or JSON as it is.
func unquoted(document string) string {
	var text string
	if json.Unmarshal([]byte(document), &text) == nil {
		return text
	}
	return document
}
