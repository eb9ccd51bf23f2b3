package provider

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	"github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralconversations"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// toolNames are the names of tools that a format has: of ASCII letters, digits, `_` and `-`. The zero value is any
// name.
type toolNames struct {
	// most is how many bytes a name has at most, and more are further characters in it.
	most int
	more string
	// lettered means that a name begins with a letter or `_`.
	lettered bool
}

// namesOf are the names of tools by the format, as vendors document them, or say in their refusals.
var namesOf = map[string]toolNames{
	anthropic.Name:            {most: 128},
	bedrockconverse.Name:      {most: 64},
	gemini.Name:               {most: 64, more: ".:", lettered: true},
	mistralconversations.Name: {most: 64},
	openaichat.Name:           {most: 64},
	openairesponses.Name:      {most: 64},
}

// WithToolNames returns a request whose tools have names that the model's format has, and a function that restores the
// given names in the response, as is done in its stream. A name depends on the given one, and on the others of the
// request where two would be the same.
func (m *Model) WithToolNames(r *Request) (*Request, func(*Response)) {
	n := namesOf[m.Kind.Dialect]
	taken, unfit := map[string]bool{}, []string(nil)
	add := func(name string) {
		switch {
		case name == "" || n.fits(name):
		case !taken[name]:
			taken[name], unfit = true, append(unfit, name)
		}
	}
	eachToolName(r, add)
	if len(unfit) == 0 {
		return r, func(*Response) {}
	}
	eachToolName(r, func(name string) { taken[name] = true })
	for _, tool := range r.Tools { // Those that the vendor runs too.
		taken[tool.GetName()] = true
	}
	names := map[string]string{}
	for _, name := range unfit {
		names[name] = n.fitted(name, taken)
		taken[names[name]] = true
	}
	sent, restore := Renamed(r, names)
	return sent, func(response *Response) {
		restore(response.Output)
		for _, message := range response.Compacted {
			restore(&modelv1.ModelOutput{Choices: []*modelv1.Choice{{Message: message}}})
		}
	}
}

// eachToolName passes on the names of the tools of a request: of those on offer, and of those in its conversation.
func eachToolName(r *Request, add func(name string)) {
	for _, tool := range r.Tools {
		if !hosted.Is(tool) {
			add(tool.GetName())
		}
	}
	for _, message := range r.Messages {
		add(message.GetFunction())
		for _, call := range message.GetToolCalls() {
			add(call.GetFunction())
		}
	}
}

func (n toolNames) fits(name string) bool {
	return n.most == 0 || len(name) <= n.most && n.replaced(name) == name
}

// replaced is a name with `_` in place of what no name has.
func (n toolNames) replaced(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', strings.ContainsRune(n.more, r):
			return r
		default:
			return '_'
		}
	}, name)
	if n.lettered && (name[0] < 'A' || name[0] > 'z') {
		name = "_" + name
	}
	return name
}

// fitted is a name that is not taken in place of one that does not fit. Of a long one the end is a hash of all.
func (n toolNames) fitted(name string, taken map[string]bool) string {
	whole := n.replaced(name)
	sent := whole
	for i := 0; len(sent) > n.most || taken[sent]; i++ {
		hash := fnv.New32a()
		_, _ = fmt.Fprintf(hash, "%s#%d", name, i)
		end := fmt.Sprintf("_%08x", hash.Sum32())
		sent = whole[:min(len(whole), n.most-len(end))] + end
	}
	return sent
}
