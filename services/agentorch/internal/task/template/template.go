// Package template fills the placeholders of prompts and programs: `{name}` or `{metadata.key}`. An unknown placeholder
// stays as it is, so that braces with other meanings do no harm. Inserted text is not expanded again. The time is
// proportional to the sizes of the texts, the values and the result, which is bounded.
package template

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// Values returns the value of a placeholder by its name. It may be called repeatedly with the same name.
type Values func(name string) (string, bool)

var (
	placeholder = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_.-]*\}`)
	withEscapes = regexp.MustCompile(`\{\{|\}\}|` + placeholder.String())
)

// Room is the number of bytes left for filled texts. Each filled text reduces it.
type Room int

// NewRoom has room for bound.TemplateBytes.
func NewRoom() *Room { return new(Room(bound.TemplateBytes)) }

// Prompt fills a prompt. `{{` and `}}` are single braces. It fails with REQUEST_TOO_LARGE if there is no room.
func (r *Room) Prompt(text string, values Values) (string, error) {
	return r.fill(withEscapes, text, values)
}

// Program fills the text of a program, in which double braces are not special. It fails with REQUEST_TOO_LARGE if there
// is no room.
func (r *Room) Program(text string, values Values) (string, error) {
	return r.fill(placeholder, text, values)
}

func (r *Room) fill(form *regexp.Regexp, text string, values Values) (string, error) {
	var filled strings.Builder
	for rest := text; rest != ""; {
		at := form.FindStringIndex(rest)
		if at == nil {
			at = []int{len(rest), len(rest)}
		}
		value := valueOf(rest[at[0]:at[1]], values)
		if *r -= Room(at[0] + len(value)); *r < 0 {
			return "", rpcerr.RequestTooLarge("", bound.TemplateBytes, "the text would have more than %d bytes once its placeholders are filled", bound.TemplateBytes)
		}
		filled.WriteString(rest[:at[0]])
		filled.WriteString(value)
		rest = rest[at[1]:]
	}
	return filled.String(), nil
}

// valueOf is the replacement of a match: an escape, a placeholder or nothing.
func valueOf(found string, values Values) string {
	switch found {
	case "":
		return ""
	case "{{":
		return "{"
	case "}}":
		return "}"
	}
	if value, ok := values(found[1 : len(found)-1]); ok {
		return value
	}
	return found
}

// Missing returns the placeholders of a program that begin with a prefix and have no value, each once, in order.
func Missing(text, prefix string, values Values) []string {
	return missing(placeholder, text, prefix, values)
}

// Unfilled returns the placeholders of a prompt that have no value, each once, in order: they stay in its text.
func Unfilled(text string, values Values) []string { return missing(withEscapes, text, "", values) }

func missing(form *regexp.Regexp, text, prefix string, values Values) []string {
	var missing []string
	seen := map[string]bool{}
	for rest := text; ; {
		at := form.FindStringIndex(rest)
		if at == nil {
			return missing
		}
		found := rest[at[0]:at[1]]
		rest = rest[at[1]:]
		name := strings.Trim(found, "{}")
		if name == "" || !strings.HasPrefix(name, prefix) || seen[name] {
			continue // A name that is empty is an escape.
		}
		seen[name] = true
		if _, ok := values(name); !ok {
			missing = append(missing, name)
		}
	}
}

// mostNamed bounds the names in a warning.
const mostNamed = 20

// Warning says of a prompt which placeholders have no value before the run starts; empty if all have one. Whose names
// the template, and known are the names that have a value, of which some stand for all if they are many.
func Warning(whose, text string, values Values, known []string) string {
	unfilled := Unfilled(text, values)
	if len(unfilled) == 0 {
		return ""
	}
	meant := ""
	for _, name := range unfilled {
		meant = cmp.Or(meant, suggest.Question(name, known))
	}
	named := "{" + strings.Join(unfilled[:min(len(unfilled), mostNamed)], "}, {") + "}"
	if more := len(known) - mostNamed; more > 0 {
		known = append(slices.Clone(known[:mostNamed]), fmt.Sprintf("and %d more", more))
	}
	says := whose + " has no value for " + named + ", which stays in the text if nothing sets it before; "
	return says + meant + suggest.Known(known)
}

// First asks several values in turn.
func First(all ...Values) Values {
	return func(name string) (string, bool) {
		for _, values := range all {
			if value, ok := values(name); ok {
				return value, true
			}
		}
		return "", false
	}
}

// Under prefixes the names of values: Under("metadata", v) returns for `metadata.key` what v returns for `key`.
func Under(prefix string, values Values) Values {
	return func(name string) (string, bool) {
		rest, ok := strings.CutPrefix(name, prefix+".")
		if !ok {
			return "", false
		}
		return values(rest)
	}
}

// Map returns texts by name.
func Map(texts map[string]string) Values {
	return func(name string) (string, bool) {
		value, ok := texts[name]
		return value, ok
	}
}

// Object returns the members of a JSON object: texts as they are, other values as JSON. `a.b` is the member b of the
// member a, unless there is a member `a.b`. The document, and each member, is parsed at its first use. The values are
// not safe for concurrent use.
func Object(document string) Values {
	return (&object{document: document}).member
}

// object is a JSON value, which is parsed once.
type object struct {
	document string
	parsed   bool
	members  map[string]json.RawMessage // nil if it is not an object
	inner    map[string]*object
}

func (o *object) member(name string) (string, bool) {
	if !o.parsed {
		o.parsed, o.inner = true, map[string]*object{}
		if begins(o.document, "{") && json.Unmarshal([]byte(o.document), &o.members) != nil {
			o.members = nil
		}
	}
	if value, ok := o.members[name]; ok {
		return Text(string(value)), true
	}
	outer, rest, nested := strings.Cut(name, ".")
	value, ok := o.members[outer]
	if !nested || !ok {
		return "", false
	}
	if o.inner[outer] == nil {
		o.inner[outer] = &object{document: string(value)}
	}
	return o.inner[outer].member(rest)
}

// Names returns the names of a JSON object's members, sorted; none if the document is no object.
func Names(document string) []string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(document), &members) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(members))
}

// begins reports whether a JSON text is of the kind that begins so.
func begins(document, with string) bool {
	return strings.HasPrefix(strings.TrimLeft(document, " \t\r\n"), with)
}

// Text is the form of a JSON value within a text: a string as it is, everything else as JSON.
func Text(valueJSON string) string {
	var text string
	if begins(valueJSON, `"`) && json.Unmarshal([]byte(valueJSON), &text) == nil {
		return text
	}
	return valueJSON
}
