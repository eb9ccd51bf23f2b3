package openairesponses

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
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
	// InputSchema and Annotations are of a tool that a server lists.
	InputSchema json.RawMessage `json:"input_schema"`
	Annotations json.RawMessage `json:"annotations"`
	// Tools are those of a namespace.
	Tools []wireTool `json:"tools"`
}

// wireName is the name of a tool on the wire, where the canonical form has another: in the tool's options, under
// optionWire.
type wireName struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Custom means that the tool takes a text, which is its only argument in the canonical form.
	Custom bool `json:"custom,omitempty"`
}

// kind is the type of the tool.
func (n wireName) kind() string {
	if n.Custom {
		return toolCustom
	}
	return toolFunction
}

// optionWire is the option of a tool that has its wireName.
const optionWire = "responses"

// customInput is the argument of a custom tool in the canonical form.
const customInput = "input"

// offer are the tools of a client's request, each with a name of its own. In the canonical form tools have neither
// namespaces nor texts as arguments.
type offer struct {
	tools []*toolv1.ToolInfo
	// names are the names in the canonical form.
	names map[wireName]string
	taken map[string]bool
	// left reports whether a tool was left out, since only the vendor can run it.
	left bool
}

// offer reads the tools of a request, and those that its items add.
func (w *wireRequest) offer(items []item) (*offer, error) {
	o := &offer{names: map[wireName]string{}, taken: map[string]bool{}}
	err := o.add("tools", "", w.Tools)
	for i := range items {
		if err == nil && items[i].Type == typeTools {
			err = o.add(fmt.Sprintf("input[%d].tools", i), "", items[i].Tools)
		}
	}
	return o, err
}

// add adds tools of a namespace. Tools that only the vendor can run are left out: the model has one offer less.
func (o *offer) add(param, namespace string, tools []wireTool) error {
	for i := range tools {
		t, param := &tools[i], fmt.Sprintf("%s[%d]", param, i)
		named := wireName{Namespace: namespace, Name: t.Name, Custom: t.Type == toolCustom}
		switch t.Type {
		case toolFunction, toolCustom, toolNamespace:
			if t.Name == "" {
				return dialect.Required(param + ".name")
			}
		default:
			o.left = true
			continue
		}
		if t.Type == toolNamespace {
			if namespace != "" {
				return dialect.Invalid(param, "is a namespace within a namespace")
			}
			if err := o.add(param+".tools", t.Name, t.Tools); err != nil {
				return err
			}
			continue
		}
		if _, again := o.names[named]; again {
			continue // An item may repeat a tool.
		}
		name := t.Name
		if o.taken[name] {
			name = namespace + "__" + name
		}
		if namespace == "" && o.taken[t.Name] || o.taken[name] {
			return dialect.Invalid(param+".name", "%q is there more than once", t.Name)
		}
		o.names[named], o.taken[name] = name, true
		o.tools = append(o.tools, t.info(name, named))
	}
	return nil
}

// info is the tool in the canonical form.
func (t *wireTool) info(name string, named wireName) *toolv1.ToolInfo {
	info := &toolv1.ToolInfo{Name: name, Description: t.Description, ParametersJson: dialect.NoParameters}
	if jsonread.IsSet(t.Parameters) {
		info.ParametersJson = string(t.Parameters)
	}
	if named.Custom {
		info.ParametersJson = customParameters
		if t.Format.Definition != "" {
			info.Description += fmt.Sprintf("\n\n`%s` must be a text of this %s:\n%s", customInput, cmp.Or(t.Format.Syntax, "grammar"), t.Format.Definition)
		}
	}
	if named != (wireName{Name: name}) {
		info.OptionsJson = string(jsonwrite.Marshal(map[string]wireName{optionWire: named}))
	}
	return info
}

const customParameters = `{"type":"object","properties":{"` + customInput + `":{"type":"string","description":"Input."}},"required":["` + customInput + `"],"additionalProperties":false}`

// nameOf is the canonical name of a tool that a client names. A tool that is not on offer has its own.
func (o *offer) nameOf(namespace, name string, custom bool) string {
	if known, ok := o.names[wireName{namespace, name, custom}]; ok {
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
		choice, ok := openai.ChoiceOf(word)
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
	}
	if json.Unmarshal(raw, &named) != nil || named.Type != toolFunction && named.Type != toolCustom || named.Name == "" {
		return nil, dialect.Invalid(param, "is neither auto, none nor required, nor the name of a function")
	}
	return chat.FunctionChoice(o.nameOf(named.Namespace, named.Name, named.Type == toolCustom)), nil
}

// wireNameOf is the name of a called function on the wire.
func wireNameOf(function string, tools []*toolv1.ToolInfo) wireName {
	for _, t := range tools {
		if t.GetName() != function || t.GetOptionsJson() == "" {
			continue
		}
		var options map[string]json.RawMessage
		var named wireName
		if json.Unmarshal([]byte(t.GetOptionsJson()), &options) == nil && json.Unmarshal(options[optionWire], &named) == nil && named.Name != "" {
			return named
		}
	}
	return wireName{Name: function}
}

// customText is the text of a call of a custom tool.
func customText(call *toolv1.ToolCall) string {
	var arguments map[string]json.RawMessage
	var text string
	if json.Unmarshal([]byte(dialect.ArgumentsOf(call)), &arguments) == nil && len(arguments) == 1 && json.Unmarshal(arguments[customInput], &text) == nil {
		return text
	}
	return dialect.ArgumentsOf(call)
}

// customCall is a call of a custom tool in the canonical form.
func customCall(id, function, text string) *toolv1.ToolCall {
	return &toolv1.ToolCall{
		Id: id, Function: function, Type: toolv1.ToolCallType_TOOL_CALL_TYPE_FUNCTION,
		ArgumentsJson: string(jsonwrite.Marshal(map[string]string{customInput: text})),
	}
}
