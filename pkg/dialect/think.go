package dialect

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"regexp"
	"strings"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// Models without a place for reasoning in their messages get it as text between these tags, and some answer so.
const (
	thinkOpen  = "<think"
	thinkClose = "</think>"
)

// Think writes a reasoning part as text between tags. Attributes hold the data that a replay needs.
func Think(part *contentv1.Content) string {
	r := part.GetReasoning()
	var b strings.Builder
	b.WriteString(thinkOpen)
	attribute := func(name, value string) {
		b.WriteString(" " + name + `="` + strings.ReplaceAll(html.EscapeString(value), "&#34;", "&quot;") + `"`)
	}
	if r.Signature != nil {
		attribute("signature", r.GetSignature())
	}
	if r.GetRedacted() {
		attribute("redacted", "true")
	}
	if internal := part.GetInternalJson(); internal != "" {
		attribute("internal", base64.StdEncoding.EncodeToString([]byte(internal)))
	}
	b.WriteString(">\n")
	if r.Summary != nil {
		b.WriteString("<summary>" + r.GetSummary() + "</summary>\n")
	}
	b.WriteString(r.GetReasoning() + "\n" + thinkClose)
	return b.String()
}

// CutThink cuts the first block between think tags out of text. Nested blocks belong to it. ok reports whether there is
// a closed block; rest is the text around it, trimmed.
func CutThink(text string) (reasoning, rest string, ok bool) {
	_, body, rest, ok := cutBlock(text)
	if !ok {
		return "", text, false
	}
	_, reasoning = cutSummary(body)
	return reasoning, rest, true
}

// ReadThink is CutThink for text that Think may have written: it restores the part's attributes and summary from the
// tag.
func ReadThink(text string) (part *contentv1.Content, rest string, ok bool) {
	attributes, body, rest, ok := cutBlock(text)
	if !ok {
		return nil, text, false
	}
	r := &contentv1.Reasoning{}
	part = &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: r}}
	r.Summary, r.Reasoning = cutSummary(body)
	for _, attribute := range attribute.FindAllStringSubmatch(attributes, -1) {
		switch value := html.UnescapeString(attribute[2]); attribute[1] {
		case "signature":
			r.Signature = &value
		case "redacted":
			r.Redacted = value == "true"
		case "internal":
			if internal, err := base64.StdEncoding.DecodeString(value); err == nil && json.Valid(internal) {
				part.InternalJson = string(internal)
			}
		}
	}
	return part, rest, true
}

// attribute is an attribute of a tag.
var attribute = regexp.MustCompile(`([a-z]+)="([^"]*)"`)

// cutBlock cuts the first block out of text.
func cutBlock(text string) (attributes, body, rest string, ok bool) {
	start, inside := nextOpen(text, 0)
	if start < 0 {
		return "", "", text, false
	}
	depth, at, end := 1, inside, -1 // end is where the next closing tag begins
	for {
		if end < at {
			next := strings.Index(text[at:], thinkClose)
			if next < 0 {
				return "", "", text, false
			}
			end = at + next
		}
		inner, after := nextOpen(text[:end], at)
		if inner >= 0 {
			depth++
			at = after
			continue
		}
		depth--
		at = end + len(thinkClose)
		if depth == 0 {
			return text[start+len(thinkOpen) : inside-1], strings.TrimSpace(text[inside:end]), strings.TrimSpace(text[:start] + text[at:]), true
		}
	}
}

// nextOpen returns the begin and the end of the next opening tag; -1 if there is none.
func nextOpen(text string, from int) (start, end int) {
	for {
		i := strings.Index(text[from:], thinkOpen)
		if i < 0 {
			return -1, -1
		}
		start = from + i
		from = start + len(thinkOpen)
		if from < len(text) && (text[from] == '>' || text[from] == ' ') {
			if j := strings.IndexByte(text[from:], '>'); j >= 0 {
				return start, from + j + 1
			}
			return -1, -1
		}
	}
}

// cutSummary splits a leading summary from the reasoning; it is nil if there is none.
func cutSummary(body string) (summary *string, reasoning string) {
	if rest, ok := strings.CutPrefix(body, "<summary>"); ok {
		if within, after, closed := strings.Cut(rest, "</summary>"); closed {
			return &within, strings.TrimSpace(after)
		}
	}
	return nil, body
}

// WrapInternal writes a provider's own JSON as text, for formats that have no place for it.
func WrapInternal(internalJSON string) string {
	return "<content-internal>" + base64.StdEncoding.EncodeToString([]byte(internalJSON)) + "</content-internal>"
}
