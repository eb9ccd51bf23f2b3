package tool

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/jsonschema"
)

// namePattern is the name of a tool that all providers accept.
var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// parameters are a tool's declared parameters, ready to check and coerce arguments.
type parameters struct {
	schema *jsonschema.Schema
	object *orderedjson.Object
}

// first returns the name of the first parameter, or "".
func (p *parameters) first() string {
	for name := range member(p.object, "properties").All() {
		return name
	}
	return ""
}

// declare checks a tool's definition for the model: its name, and that the tool and each of its parameters are
// described.
func declare(schemas *jsonschema.Cache, info *toolv1.ToolInfo) (*parameters, error) {
	name := info.GetName()
	if !namePattern.MatchString(name) {
		return nil, fmt.Errorf("the tool name %q is not 1 to 128 letters, digits, '_' and '-'", name)
	}
	if strings.TrimSpace(info.GetDescription()) == "" {
		return nil, fmt.Errorf("tool %s: the description is missing", name)
	}
	text := json.RawMessage(info.GetParametersJson())
	schema, err := schemas.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("tool %s: parameters: %w", name, err)
	}
	object, err := orderedjson.DecodeObject(text)
	if err != nil {
		return nil, fmt.Errorf("tool %s: parameters: %w", name, err)
	}
	if kinds := types(object); !slices.Equal(kinds, []any{"object"}) {
		return nil, fmt.Errorf("tool %s: parameters: the schema's type is not \"object\"", name)
	}
	for parameter, value := range member(object, "properties").All() {
		described, _ := value.(*orderedjson.Object)
		if described == nil {
			described = &orderedjson.Object{}
		}
		if text, _ := described.Get("description"); text == nil || text == "" {
			return nil, fmt.Errorf("tool %s: the description of parameter %s is missing", name, parameter)
		}
	}
	return &parameters{schema: schema, object: object}, nil
}

// change applies a run's changes to a definition.
func change(public *toolv1.ToolDefinition, ref *toolv1.ToolRef) error {
	info := public.Info
	if name := ref.GetRename(); name != "" {
		info.Name = name
	}
	if description := ref.GetDescription(); description != "" {
		info.Description = description
	}
	if text := ref.GetParametersJson(); text != "" {
		info.ParametersJson = text
	}
	if len(ref.GetParameterDescriptions()) == 0 {
		return nil
	}
	described, err := describe(json.RawMessage(info.ParametersJson), ref.GetParameterDescriptions())
	if err != nil {
		return fmt.Errorf("tool %s: %w", ref.GetName(), err)
	}
	info.ParametersJson = string(described)
	return nil
}

// describe replaces the descriptions of parameters in a schema.
func describe(schema json.RawMessage, descriptions map[string]string) (json.RawMessage, error) {
	object, err := orderedjson.DecodeObject(schema)
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	properties := member(object, "properties")
	for _, name := range slices.Sorted(maps.Keys(descriptions)) {
		value, _ := properties.Get(name)
		property, ok := value.(*orderedjson.Object)
		if !ok {
			return nil, fmt.Errorf("no parameter %q to describe; there are: %s", name, strings.Join(names(properties), ", "))
		}
		property.Set("description", descriptions[name])
	}
	return orderedjson.Append(nil, object), nil
}

func names(object *orderedjson.Object) []string {
	var all []string
	for name := range object.All() {
		all = append(all, name)
	}
	return all
}
