package evallog

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

const (
	// AttachmentScheme begins a text that refers to an attachment.
	AttachmentScheme = "attachment://"
	// longText is how many characters a text of an event may have before it becomes an attachment.
	longText = 100
)

// Condenser keeps the long texts and the messages of one sample, each once. Events refer to them: a text by the key of
// an attachment, the messages that a model was given by ranges in a pool. The zero value is ready to use. It serves one
// sample.
//
// Readers resolve references only in certain members of certain events; the methods replace no other values.
type Condenser struct {
	texts  map[string]string // by key
	keys   []string          // in the order in which they came
	pool   []json.RawMessage
	pooled map[string]int // place in pool
}

// Any replaces all long texts in a JSON value.
func (c *Condenser) Any(raw json.RawMessage) json.RawMessage {
	return c.long(raw, func([]string) bool { return true })
}

// Message replaces the long texts and media in a message's content.
func (c *Condenser) Message(raw json.RawMessage) json.RawMessage { return c.long(raw, isContent) }

// Output replaces what Message does in the messages of a model's output.
func (c *Condenser) Output(raw json.RawMessage) json.RawMessage {
	return c.long(raw, func(path []string) bool {
		return len(path) > 2 && path[0] == "choices" && path[1] == "message" && isContent(path[2:])
	})
}

// Tools replaces the long descriptions of tools.
func (c *Condenser) Tools(raw json.RawMessage) json.RawMessage {
	return c.long(raw, func(path []string) bool { return len(path) == 1 && path[0] == "description" })
}

// Media replaces the data URIs in content, however short, and nothing else.
func (c *Condenser) Media(raw json.RawMessage) json.RawMessage {
	return replaceTexts(raw, func(path []string, text string) (string, bool) {
		if len(path) == 0 || !slices.Contains(mediaMembers, path[len(path)-1]) || !strings.HasPrefix(text, "data:") {
			return "", false
		}
		return c.attach(text), true
	})
}

func (c *Condenser) long(raw json.RawMessage, allowed func(path []string) bool) json.RawMessage {
	return replaceTexts(raw, func(path []string, text string) (string, bool) {
		if len(text) <= longText || utf8.RuneCountInString(text) <= longText || !allowed(path) {
			return "", false
		}
		return c.attach(text), true
	})
}

// mediaMembers are the members of content that hold the location of a medium.
var mediaMembers = []string{"image", "audio", "video", "document"}

// isContent reports whether a path in a message leads to its text, or to the text or medium of a part of its content.
func isContent(path []string) bool {
	if len(path) == 0 || path[0] != "content" {
		return false
	}
	return len(path) == 1 || len(path) == 2 && (path[1] == "text" || path[1] == "reasoning" || slices.Contains(mediaMembers, path[1]))
}

// Pool stores messages, condensed, and returns their positions: ranges of start and end, in order. The end is
// exclusive.
func (c *Condenser) Pool(messages []json.RawMessage) [][2]int {
	var ranges [][2]int
	for _, m := range messages {
		at, known := c.pooled[string(m)]
		if !known {
			if c.pooled == nil {
				c.pooled = map[string]int{}
			}
			at = len(c.pool)
			c.pool = append(c.pool, m)
			c.pooled[string(m)] = at
		}
		if n := len(ranges); n > 0 && ranges[n-1][1] == at {
			ranges[n-1][1]++
		} else {
			ranges = append(ranges, [2]int{at, at + 1})
		}
	}
	return ranges
}

// Attachments returns the texts that were replaced, by their keys.
func (c *Condenser) Attachments() map[string]string { return c.texts }

func (c *Condenser) attach(text string) string {
	key := AttachmentKey(text)
	if _, known := c.texts[key]; !known {
		if c.texts == nil {
			c.texts = map[string]string{}
		}
		c.texts[key] = text
		c.keys = append(c.keys, key)
	}
	return AttachmentScheme + key
}

// write writes the members of the sample that hold the condensed texts and messages.
func (c *Condenser) write(w *jsonwrite.Writer) {
	if c == nil {
		c = &Condenser{}
	}
	w.Key("attachments")
	w.BeginObject()
	for _, key := range c.keys {
		w.TextMember(key, c.texts[key])
	}
	w.EndObject()
	w.Key("events_data")
	w.BeginObject()
	list(w, "messages", c.pool, func(m json.RawMessage) { w.Raw(string(m)) })
	w.RawMember("calls", "[]")
	w.EndObject()
}

// replaceTexts copies JSON and calls replace for each text that is a value. Path holds the names of the enclosing
// members, outermost first; lists add none. Everything else is copied unchanged.
func replaceTexts(raw json.RawMessage, replace func(path []string, text string) (string, bool)) json.RawMessage {
	var out []byte
	copied := 0
	var path []string // one name for each open object, the last one it had
	var lists []bool  // for each open value: whether it is a list
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '{', '[':
			if lists = append(lists, raw[i] == '['); raw[i] == '{' {
				path = append(path, "")
			}
			i++
		case '}', ']':
			if n := len(lists); n > 0 {
				if !lists[n-1] {
					path = path[:len(path)-1]
				}
				lists = lists[:n-1]
			}
			i++
		case '"':
			end := textEnd(raw, i)
			var text string
			if json.Unmarshal(raw[i:end], &text) != nil {
				return raw // It is no JSON.
			}
			if n := len(path); n > 0 && isName(raw, end) {
				path[n-1] = text
			} else if by, ok := replace(path, text); ok {
				out = append(out, raw[copied:i]...)
				out = jsonwrite.AppendText(out, by)
				copied = end
			}
			i = end
		default:
			i++
		}
	}
	if copied == 0 {
		return raw
	}
	return append(out, raw[copied:]...)
}

// textEnd returns the place after the text that begins at i.
func textEnd(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// isName reports whether a colon follows.
func isName(raw []byte, i int) bool {
	for ; i < len(raw); i++ {
		if raw[i] > ' ' {
			return raw[i] == ':'
		}
	}
	return false
}
