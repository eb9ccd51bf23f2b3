package known

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// ruleEnvironment declares the additions of rules to the language's own functions.
func ruleEnvironment() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("case", cel.DynType),
		cel.Function("text", cel.Overload("text_dyn", []*cel.Type{cel.DynType}, cel.StringType,
			cel.UnaryBinding(compactJSON))),
	)
}

func compile(env *cel.Env, rule string) (cel.Program, error) {
	ast, issues := env.Compile(rule)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("rule: %w", err)
	}
	if kind := ast.OutputType(); kind != cel.BoolType && kind != cel.DynType {
		return nil, errors.New("rule: is not true or false")
	}
	return env.Program(ast)
}

func holds(program cel.Program, value any) bool {
	result, _, err := program.Eval(map[string]any{"case": value})
	return err == nil && result == types.True
}

// ruleValue gives numbers the types of the rule language: whole ones that fit are int, others double.
func ruleValue(value any) any {
	switch value := value.(type) {
	case json.Number:
		if whole, err := value.Int64(); err == nil {
			return whole
		}
		float, _ := value.Float64() // beyond float64: an infinity, which serves a rule
		return float
	case []any:
		list := make([]any, len(value))
		for i, item := range value {
			list[i] = ruleValue(item)
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(value))
		for name, member := range value {
			object[name] = ruleValue(member)
		}
		return object
	default:
		return value
	}
}

func compactJSON(value ref.Val) ref.Val {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(plain(value)); err != nil {
		return types.NewErr("text: %v", err)
	}
	return types.String(strings.TrimSuffix(text.String(), "\n"))
}

// plain unwraps the members of lists and maps in values of the rule language.
func plain(value any) any {
	switch value := value.(type) {
	case types.Null:
		return nil
	case ref.Val:
		return plain(value.Value())
	case []ref.Val:
		list := make([]any, len(value))
		for i, item := range value {
			list[i] = plain(item)
		}
		return list
	case map[ref.Val]ref.Val:
		object := make(map[string]any, len(value))
		for name, member := range value {
			object[fmt.Sprint(name.Value())] = plain(member)
		}
		return object
	default:
		return value
	}
}
