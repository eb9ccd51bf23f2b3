package responsesapi

import (
	"encoding/json"
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Models of the Responses API were trained with a tool for plans, which replaces the platform's.
const (
	todoTool = "todo_write"
	planTool = "update_plan"
)

// todoSchema is the schema of the platform's tool, without descriptions.
const todoSchema = `{"type":"object","properties":{"todos":{"type":"array","items":{"type":"object","properties":{"content":{"type":"string"},` +
	`"status":{"type":"string","enum":["pending","in_progress","completed"]}},"required":["content","status"],"additionalProperties":false}},` +
	`"explanation":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["todos"],"additionalProperties":false}`

// plan is the tool that the models know: https://developers.openai.com/codex.
var plan = &toolv1.ToolInfo{
	Name:        planTool,
	Description: "Records the plan of the task, and replaces the one before. Give all steps; at most one step is in_progress.",
	ParametersJson: `{"type":"object","properties":{"plan":{"type":"array","description":"All steps of the plan.","items":{"type":"object","properties":{` +
		`"step":{"type":"string","description":"Step name."},"status":{"type":"string","description":"One of pending, in_progress, completed."}},` +
		`"additionalProperties":false,"required":["step","status"]}},"explanation":{"description":"Optional explanation.","anyOf":[{"type":"string"},{"type":"null"}]}},` +
		`"required":["plan"],"additionalProperties":false}`,
}

// Names of arguments, of the plan and of each of its steps, by those of the other tool.
var (
	toPlan  = map[string]string{"todos": "plan", "content": "step"}
	toTodos = map[string]string{"plan": "todos", "step": "content"}
)

// planned returns the request with the models' tool for plans in place of the platform's, and a function that undoes it
// in the output. In a stream the arguments of such a call come at its end, whole. It copies what it changes.
func planned(r *provider.Request) (*provider.Request, func(*modelv1.ModelOutput)) {
	at := slices.IndexFunc(r.Tools, isTodo)
	isPlan := func(tool *toolv1.ToolInfo) bool { return tool.GetName() == planTool }
	if at < 0 || !provider.WantsNative(r.Config) || slices.ContainsFunc(r.Tools, isPlan) {
		return r, func(*modelv1.ModelOutput) {}
	}
	copied := *r
	copied.Tools, copied.Messages = slices.Clone(r.Tools), slices.Clone(r.Messages)
	copied.Tools[at] = plan
	isCall := func(call *toolv1.ToolCall) bool { return call.GetFunction() == todoTool }
	for i, m := range copied.Messages {
		if slices.ContainsFunc(m.GetToolCalls(), isCall) {
			copied.Messages[i] = proto.CloneOf(m)
			renameCalls(copied.Messages[i], todoTool, planTool, toPlan)
		}
	}
	if r.ToolChoice.GetFunction() == todoTool {
		copied.ToolChoice = chat.FunctionChoice(planTool)
	}
	held := map[int32]bool{}
	if r.Stream != nil {
		copied.Stream = func(d *modelv1.GenerateDelta) {
			call := d.GetToolCall()
			if call.GetFunction() == planTool {
				held[call.GetIndex()] = true
				call.Function = todoTool
			}
			if call != nil && held[call.GetIndex()] {
				call.Arguments = ""
			}
			r.Stream(d)
		}
	}
	return &copied, func(output *modelv1.ModelOutput) {
		for _, choice := range output.GetChoices() {
			renameCalls(choice.GetMessage(), planTool, todoTool, toTodos)
		}
		for i, call := range chat.FirstMessage(output).GetToolCalls() {
			if held[int32(i)] {
				r.Stream(dialect.CallDelta(&modelv1.ToolCallDelta{Index: int32(i), Arguments: call.GetArgumentsJson()}))
			}
		}
	}
}

// isTodo reports whether a tool is the platform's own, whatever its descriptions.
func isTodo(tool *toolv1.ToolInfo) bool {
	if tool.GetName() != todoTool {
		return false
	}
	bare := dialect.EditSchema(tool.GetParametersJson(), func(schema *orderedjson.Object) bool {
		_, there := schema.Get("description")
		schema.Delete("description")
		return there
	})
	var got, want any
	_, _ = json.Unmarshal([]byte(bare), &got), json.Unmarshal([]byte(todoSchema), &want)
	return reflect.DeepEqual(got, want)
}

// renameCalls renames the function of calls, and their arguments.
func renameCalls(m *modelv1.ChatMessage, from, to string, names map[string]string) {
	for _, call := range m.GetToolCalls() {
		if call.GetFunction() != from {
			continue
		}
		call.Function = to
		if arguments, err := orderedjson.DecodeObject([]byte(call.GetArgumentsJson())); err == nil {
			call.ArgumentsJson = string(orderedjson.Append(nil, renamed(arguments, names)))
		}
	}
}

// renamed returns a value with the members of its objects renamed.
func renamed(value any, names map[string]string) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = renamed(v[i], names)
		}
	case *orderedjson.Object:
		all := &orderedjson.Object{}
		for name, member := range v.All() {
			if other := names[name]; other != "" {
				name = other
			}
			all.Set(name, renamed(member, names))
		}
		return all
	}
	return value
}
