// Package citation reads and writes the sources of a model's texts in the formats of vendors. Anthropic quotes a
// source; OpenAI and Google name the range of the text that a source supports.
package citation

import (
	"strings"
	"unicode/utf8"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// page is a source on the web, and the range of characters of a text that it is about.
type page struct {
	url, title string
	start, end int64
}

// pages are the sources of a text that are on the web. One without a range is about all of the text.
func pages(text *contentv1.Text) (all []page) {
	whole := int64(-1)
	for _, c := range text.GetCitations() {
		if c.GetUrl() == "" {
			continue
		}
		if whole < 0 {
			whole = int64(utf8.RuneCountInString(text.GetText()))
		}
		p := page{url: c.GetUrl(), title: c.GetTitle(), end: whole}
		if r := c.GetCitedRange(); r != nil && r.GetStart() >= 0 && r.GetStart() <= r.GetEnd() && r.GetEnd() <= whole {
			p.start, p.end = r.GetStart(), r.GetEnd()
		}
		all = append(all, p)
	}
	return all
}

// byteOf is the place in bytes of a character of a text.
func byteOf(text string, character int64) int {
	for at := range text {
		if character == 0 {
			return at
		}
		character--
	}
	return len(text)
}

// isOurs reports whether a text is of the platform's in the place of a seal of a vendor's.
func isOurs(text string) bool { return strings.HasPrefix(text, ours) }

// ours is in the place of Anthropic's seal of a source. It begins as envelopes do, so that [dialect.HasEnvelope] finds
// it.
const ours = "evalfleet:cited"
