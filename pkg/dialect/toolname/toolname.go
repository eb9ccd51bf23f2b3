// Package toolname gives tools of clients the names and the form of the canonical form, which has neither namespaces
// nor tools that take a text, and finds the client's names again.
package toolname

import (
	"encoding/json"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Name is the name of a tool to a client.
type Name struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Custom means that the tool takes a text, which is its only argument in the canonical form.
	Custom bool `json:"custom,omitempty"`
}

// option is the option of a tool that has its Name, where the canonical form has another: it is named after the first
// API with such tools.
const option = "responses"

// Input is the argument of a custom tool in the canonical form.
const Input = "input"

// CustomParameters is the JSON Schema of a custom tool in the canonical form.
const CustomParameters = `{"type":"object","properties":{"` + Input + `":{"type":"string","description":"Input."}},"required":["` + Input + `"],"additionalProperties":false}`

// Canonical gives each tool its name in the canonical form. Tools without a namespace keep theirs; any other keeps its
// own if it is free, and else has its namespace before it, and a number behind it if that is not free either.
func Canonical(tools []Name) map[Name]string {
	names, taken, next := map[Name]string{}, map[string]bool{}, map[string]int{}
	for _, t := range tools {
		if t.Namespace == "" {
			names[t], taken[t.Name] = t.Name, true
		}
	}
	for _, t := range tools {
		if t.Namespace == "" {
			continue
		}
		name := t.Name
		if taken[name] {
			joined := t.Namespace + "__" + name
			for name = joined; taken[name]; name = fmt.Sprintf("%s_%d", joined, next[joined]+1) {
				next[joined]++
			}
		}
		names[t], taken[name] = name, true
	}
	return names
}

// Options returns the options of a tool that remember its name to the client; empty if the canonical name says it.
func (n Name) Options(canonical string) string {
	if n == (Name{Name: canonical}) {
		return ""
	}
	return string(jsonwrite.Marshal(map[string]Name{option: n}))
}

// Names are the names to the client of a request's tools, where the canonical form has others.
type Names map[string]Name

// Of reads the names of tools from their options.
func Of(tools []*toolv1.ToolInfo) Names {
	names := Names{}
	for _, t := range tools {
		if _, again := names[t.GetName()]; again || t.GetOptionsJson() == "" {
			continue
		}
		var options map[string]json.RawMessage
		var named Name
		if json.Unmarshal([]byte(t.GetOptionsJson()), &options) == nil && json.Unmarshal(options[option], &named) == nil && named.Name != "" {
			names[t.GetName()] = named
		}
	}
	return names
}

// Of returns the name of a function to the client.
func (n Names) Of(function string) Name {
	if named, ok := n[function]; ok {
		return named
	}
	return Name{Name: function}
}

// Text returns the text of a call of a custom tool.
func Text(call *toolv1.ToolCall) string {
	var arguments map[string]json.RawMessage
	var text string
	if json.Unmarshal([]byte(dialect.ArgumentsOf(call)), &arguments) == nil && len(arguments) == 1 && json.Unmarshal(arguments[Input], &text) == nil {
		return text
	}
	return dialect.ArgumentsOf(call)
}

// Arguments returns the arguments of a call of a custom tool with a text.
func Arguments(text string) string {
	return string(jsonwrite.Marshal(map[string]string{Input: text}))
}
