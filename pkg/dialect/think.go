package dialect

import (
	"encoding/base64"
	"html"
	"strings"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// Models without a place for reasoning in their messages get it as text between these tags, and some answer so.
const (
	thinkOpen  = "<think"
	thinkClose = "</think>"
)

// Think writes a reasoning part as text between tags. What is needed to replay it goes into attributes.
func Think(part *contentv1.Content) string {
	r := part.GetReasoning()
	var b strings.Builder
	b.WriteString(thinkOpen)
	attribute := func(name, value string) {
		b.WriteString(" " + name + `="` + strings.ReplaceAll(html.EscapeString(value), "&#34;", "&quot;") + `"`)
	}
	if r.GetSignature() != "" {
		attribute("signature", r.GetSignature())
	}
	if r.GetRedacted() {
		attribute("redacted", "true")
	}
	if internal := part.GetInternalJson(); internal != "" {
		attribute("internal", base64.StdEncoding.EncodeToString([]byte(internal)))
	}
	b.WriteString(">\n")
	if r.GetSummary() != "" {
		b.WriteString("<summary>" + r.GetSummary() + "</summary>\n")
	}
	b.WriteString(r.GetReasoning() + "\n" + thinkClose)
	return b.String()
}

// CutThink cuts the first block between think tags out of text. Blocks inside it belong to it. ok says whether there is a block that is closed; rest is
// the text around it without blanks at its ends.
func CutThink(text string) (reasoning, rest string, ok bool) {
	start, body := nextOpen(text, 0)
	if start < 0 {
		return "", text, false
	}
	depth, at := 1, body
	for {
		end := strings.Index(text[at:], thinkClose)
		if end < 0 {
			return "", text, false
		}
		end += at
		inner, after := nextOpen(text[:end], at)
		if inner >= 0 {
			depth++
			at = after
			continue
		}
		depth--
		at = end + len(thinkClose)
		if depth == 0 {
			return cutSummary(strings.TrimSpace(text[body:end])), strings.TrimSpace(text[:start] + text[at:]), true
		}
	}
}

// nextOpen returns where the next opening tag begins and ends; -1 where there is none.
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

// cutSummary leaves a summary out that stands before the reasoning.
func cutSummary(reasoning string) string {
	if rest, ok := strings.CutPrefix(reasoning, "<summary>"); ok {
		if _, after, closed := strings.Cut(rest, "</summary>"); closed {
			return strings.TrimSpace(after)
		}
	}
	return reasoning
}

// WrapInternal writes a provider's own JSON as text, for formats that have no place for it.
func WrapInternal(internalJSON string) string {
	return "<content-internal>" + base64.StdEncoding.EncodeToString([]byte(internalJSON)) + "</content-internal>"
}
