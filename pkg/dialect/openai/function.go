package openai

import (
	"encoding/json"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// typeFunction is the type of a tool, of a call and of a choice that are a function.
const typeFunction = "function"

// Function is a tool on the wire, as chat completions have it.
type Function struct {
	Type     string       `json:"type"`
	Function *Declaration `json:"function"`
}

// Declaration declares a function.
type Declaration struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// Tool reads a declaration, which may be nil; param is its place within the request.
func (d *Declaration) Tool(param string) (*toolv1.ToolInfo, error) {
	if d == nil || d.Name == "" {
		return nil, dialect.Required(param + ".name")
	}
	schema := dialect.NoParameters
	if jsonread.IsSet(d.Parameters) {
		schema = string(d.Parameters)
	}
	return &toolv1.ToolInfo{Name: d.Name, Description: d.Description, ParametersJson: schema}, nil
}

// ReadFunctions reads the tools of a client's request. Tools of other types are refused.
func ReadFunctions(functions []Function) ([]*toolv1.ToolInfo, error) {
	var tools []*toolv1.ToolInfo
	for i, t := range functions {
		param := fmt.Sprintf("tools[%d]", i)
		if t.Type != typeFunction {
			return nil, dialect.NotSupported(param+".type", "%q is not supported here; `function` is", t.Type)
		}
		tool, err := t.Function.Tool(param + ".function")
		if err != nil {
			return nil, err
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

// WriteFunction writes a tool. strict is sent if it is set, and more writes further members of the tool; nil has none.
func WriteFunction(w *jsonwrite.Writer, tool *toolv1.ToolInfo, strict *bool, more func()) {
	w.BeginObject()
	w.TextMember("type", typeFunction)
	w.BeginObjectMember("function")
	w.TextMember("name", tool.GetName())
	w.TextMember("description", tool.GetDescription())
	w.RawUnlessEmpty("parameters", tool.GetParametersJson())
	w.OptBool("strict", strict)
	w.EndObject()
	if more != nil {
		more()
	}
	w.EndObject()
}

// ReadChoice reads a choice among tools: a word, or the name of a function. required is the vendor's word for any tool,
// beside OpenAI's. The choice is nil if there is none.
func ReadChoice(raw json.RawMessage, param, required string) (*toolv1.ToolChoice, error) {
	if !jsonread.IsSet(raw) {
		return nil, nil
	}
	var word string
	if json.Unmarshal(raw, &word) == nil {
		if word == required {
			word = ChoiceRequired
		}
		if choice, ok := Choices.Choice(word); ok {
			return choice, nil
		}
		return nil, dialect.Invalid(param, "%q is none of auto, none, %s", word, required)
	}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := json.Unmarshal(raw, &named); err != nil || named.Type != typeFunction || named.Function.Name == "" {
		return nil, dialect.Invalid(param, "is neither auto, none nor %s, nor the name of a function", required)
	}
	return chat.FunctionChoice(named.Function.Name), nil
}

// WriteChoice writes a choice among tools: the name of a function, or a word, of which required is that for any tool.
func WriteChoice(w *jsonwrite.Writer, choice *toolv1.ToolChoice, required string) {
	name := choice.GetFunction()
	if name == "" {
		word := Choices.Word(choice)
		if word == ChoiceRequired {
			word = required
		}
		w.Text(word)
		return
	}
	w.BeginObject()
	w.TextMember("type", typeFunction)
	w.TextObjectMember("function", "name", name)
	w.EndObject()
}
