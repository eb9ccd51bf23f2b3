package openairesponses

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	"github.com/evalfleet/evalfleet/pkg/dialect/toolname"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// Types of tools.
const (
	toolFunction  = "function"
	toolCustom    = "custom"
	toolNamespace = "namespace"
)

// wireTool is a tool on the wire: a function, a tool whose input is a text, or a namespace of such tools.
type wireTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	// Format is the form of the input of a custom tool.
	Format struct {
		Type       string `json:"type"`
		Syntax     string `json:"syntax"`
		Definition string `json:"definition"`
	} `json:"format"`
	// Tools are those of a namespace.
	Tools json.RawMessage `json:"tools"`
	// Whole is the tool as it came, of one that the vendor runs and other vendors have too.
	Whole json.RawMessage `json:"-"`
}

// readTools are the types of tools that are read. Those that a server of tools lists have none.
var readTools = map[string]bool{"": true, toolFunction: true, toolCustom: true, toolNamespace: true}

// UnmarshalJSON reads a tool. Of one that only the vendor can run its type is all that is known.
func (t *wireTool) UnmarshalJSON(raw []byte) error {
	type known wireTool
	err := jsonread.UnmarshalTyped(raw, (*known)(t), readTools, &t.Type)
	if hosted.IsOpenAIOffer(t.Type) {
		t.Whole = bytes.Clone(raw)
	}
	return err
}

// offer are the tools of a client's request, each with a name of its own. In the canonical form tools have neither
// namespaces nor texts as arguments.
type offer struct {
	tools []*toolv1.ToolInfo
	// names are the names in the canonical form.
	names map[toolname.Name]string
	// given are the client's tools, once each, by their names without their kinds, and named are the names.
	given map[toolname.Name]*wireTool
	named []toolname.Name
	// hosted are the tools that the vendor runs and other vendors have too, by how many others are before them.
	hosted map[int][]*toolv1.ToolInfo
	// left reports whether a tool was left out, since only the vendor can run it.
	left bool
}

// offer reads the tools of a request, and those that its items add.
func (w *wireRequest) offer(items []item) (*offer, error) {
	o := &offer{given: map[toolname.Name]*wireTool{}, hosted: map[int][]*toolv1.ToolInfo{}}
	err := o.list("tools[%d].", "", w.Tools)
	for i := range items {
		if err == nil && items[i].Type == typeTools {
			err = o.list(fmt.Sprintf("input[%d].tools[%%d].", i), "", items[i].Tools)
		}
	}
	if err != nil {
		return nil, err
	}
	o.names = toolname.Canonical(o.named)
	for i, named := range o.named {
		o.tools = append(o.tools, o.hosted[i]...)
		o.tools = append(o.tools, o.given[plain(named)].info(o.names[named], named))
	}
	all := append(o.tools, o.hosted[len(o.named)]...)
	o.tools = hosted.Distinct(all)
	o.left = o.left || len(o.tools) < len(all)
	return o, nil
}

// list reads tools of a namespace. Tools that only the vendor can run, and namespaces within a namespace, are left out:
// the model has one offer less.
func (o *offer) list(place, namespace string, tools []wireTool) error {
	at := -1
	return dialect.Each(tools, place, func(t *wireTool) error {
		at++
		isSpace := t.Type == toolNamespace && namespace == ""
		switch {
		case t.Whole != nil && namespace == "":
			tool, err := hosted.OpenAIOffer(t.Type, t.Whole, strings.TrimSuffix(fmt.Sprintf(place, at), "."))
			if tool == nil {
				o.left = o.left || err == nil
				return err
			}
			o.hosted[len(o.named)] = append(o.hosted[len(o.named)], tool)
			return nil
		case !isSpace && t.Type != toolFunction && t.Type != toolCustom:
			o.left = true
			return nil
		case t.Name == "":
			return dialect.Required("name")
		case !isSpace:
			return o.add(t, toolname.Name{Namespace: namespace, Name: t.Name, Custom: t.Type == toolCustom})
		}
		var within []wireTool
		if len(t.Tools) > 0 && jsonread.Unmarshal(t.Tools, &within) != nil {
			return dialect.Invalid("tools", "is no list of tools")
		}
		return o.list("tools[%d].", t.Name, within)
	})
}

// add takes a tool once: an item may repeat one. Two that differ and have one name are refused.
func (o *offer) add(t *wireTool, named toolname.Name) error {
	before := o.given[plain(named)]
	switch {
	case before == nil:
		o.given[plain(named)], o.named = t, append(o.named, named)
	case !reflect.DeepEqual(before, t):
		return dialect.Invalid("name", "%q is there more than once", t.Name)
	}
	return nil
}

// plain is a name without the kind of its tool.
func plain(n toolname.Name) toolname.Name { return toolname.Name{Namespace: n.Namespace, Name: n.Name} }

// info is the tool in the canonical form.
func (t *wireTool) info(name string, named toolname.Name) *toolv1.ToolInfo {
	info := &toolv1.ToolInfo{Name: name, Description: t.Description, ParametersJson: dialect.NoParameters, OptionsJson: named.Options(name)}
	if jsonread.IsSet(t.Parameters) {
		info.ParametersJson = string(t.Parameters)
	}
	if named.Custom {
		info.ParametersJson = toolname.CustomParameters
		if t.Format.Definition != "" {
			info.Description += fmt.Sprintf("\n\n`%s` must be a text of this %s:\n%s", toolname.Input, cmp.Or(t.Format.Syntax, "grammar"), t.Format.Definition)
		}
	}
	return info
}

// nameOf is the canonical name of a tool that a client names. A tool that is not on offer has its own.
func (o *offer) nameOf(namespace, name string, custom bool) string {
	if known, ok := o.names[toolname.Name{Namespace: namespace, Name: name, Custom: custom}]; ok {
		return known
	}
	return name
}

// choice reads the choice among the tools.
func (o *offer) choice(raw json.RawMessage) (*toolv1.ToolChoice, error) {
	const param = "tool_choice"
	if !jsonread.IsSet(raw) {
		return nil, nil
	}
	var word string
	if json.Unmarshal(raw, &word) == nil {
		choice, ok := openai.Choices.Choice(word)
		switch {
		case !ok:
			return nil, dialect.Invalid(param, "%q is none of auto, none, required", word)
		case choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY && o.left && len(o.tools) == 0:
			return nil, dialect.NotSupported(param, "demands a call, but only the vendor can run the tools on offer")
		}
		return choice, nil
	}
	var named struct {
		Type      string `json:"type"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		Server    string `json:"server_label"`
	}
	if json.Unmarshal(raw, &named) == nil {
		if name := hosted.OpenAIChoice(named.Type, named.Server, o.tools); name != "" {
			return chat.FunctionChoice(name), nil
		}
	}
	if named.Type != toolFunction && named.Type != toolCustom || named.Name == "" {
		return nil, dialect.Invalid(param, "is neither auto, none nor required, nor the name of a function")
	}
	return dialect.Chosen(o.nameOf(named.Namespace, named.Name, named.Type == toolCustom), o.tools), nil
}
