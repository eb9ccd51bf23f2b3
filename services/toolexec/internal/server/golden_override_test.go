package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// TestGoldenOverride: references that change their tools, and tools that callers declare, in; the model's tools out.
// Where the recorded functions change a tool of a program, here the reference has the differences.
func TestGoldenOverride(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "override", goldentest.Load(t, "tools/override.json"), func(t *goldentest.T, c goldentest.Case) {
		service := newService(t, nil, append(builtins(), twice("twice (first)"), twice("twice (second)"))...)
		response, err := service.ResolveTools(t.Context(), &toolv1.ResolveToolsRequest{Parent: parent, Tools: overridden(t, c)})
		if c.At("rejected") != nil {
			if err == nil {
				t.Fatal("the tool is taken")
			}
			names, _ := c.At("rejected", "names").([]any)
			for _, name := range names {
				if !strings.Contains(err.Error(), fmt.Sprint(name)) {
					t.Errorf("%v does not name %v", err, name)
				}
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		infos, parallel := toldOf(response)
		t.Equal(c.At("tool_infos"), infos)
		t.Equal(c.At("parallel"), parallel)
		if said, isText := c.At("what", "description").(string); isText {
			t.Equal(said, response.GetTools()[0].GetInfo().GetDescription())
		}
	})
}

// overridden returns the references of a case.
func overridden(t *goldentest.T, c goldentest.Case) []*toolv1.ToolRef {
	what, _ := c.At("what").(map[string]any)
	switch what["op"] {
	case "tool_with", "ToolDef", "ToolDef to tool and back", "ToolDef with full ToolParams":
		return []*toolv1.ToolRef{changed(t, what)}
	case "the tool that tool_with was called on, offered itself":
		return []*toolv1.ToolRef{{Name: what["tool"].(string)}}
	case "collision":
		refs := named(t, what["tools"])
		for _, ref := range refs {
			ref.Name, ref.Rename = kindOf(ref.GetName()), "twice"
		}
		return refs
	case "tool source", "tool choice":
		return named(t, what["tools"])
	case "tool source as the whole list":
		t.Fatal("no source of tools is known")
	case "declare":
		return []*toolv1.ToolRef{declaration(t, what)}
	default:
		t.Skipf("no driver for %q", what["op"])
	}
	return nil
}

// changed returns a reference with a case's changes of its tool. A whole schema includes what the recorded class adds
// to it.
func changed(t *goldentest.T, what map[string]any) *toolv1.ToolRef {
	ref := &toolv1.ToolRef{Name: what["tool"].(string)}
	ref.Rename, _ = what["name"].(string)
	ref.Description, _ = what["description"].(string)
	parameters, _ := what["parameters"].(map[string]any)
	if what["op"] == "ToolDef with full ToolParams" {
		schema := map[string]any{"type": "object", "additionalProperties": false}
		for member, value := range parameters {
			schema[member] = value
		}
		ref.ParametersJson = string(document(t, schema))
		return ref
	}
	for name, description := range parameters {
		if ref.ParameterDescriptions == nil {
			ref.ParameterDescriptions = map[string]string{}
		}
		ref.ParameterDescriptions[name] = fmt.Sprint(description)
	}
	return ref
}

// declaration returns a tool of the caller's own that lacks what the case names.
func declaration(t *goldentest.T, what map[string]any) *toolv1.ToolRef {
	parameter := map[string]any{}
	if what["type"] == true {
		parameter["type"] = "integer"
	}
	if what["parameter_description"] == true {
		parameter["description"] = "A parameter."
	}
	info := &toolv1.ToolInfo{Name: "bare", ParametersJson: string(document(t, map[string]any{
		"type": "object", "properties": map[string]any{"x": parameter}, "required": []any{"x"}, "additionalProperties": false,
	}))}
	if what["description"] == true {
		info.Description = "A tool."
	}
	return &toolv1.ToolRef{Name: "bare", Definition: &toolv1.ToolDefinition{Info: info, CallerRuns: true}}
}

func named(t *goldentest.T, recorded any) (refs []*toolv1.ToolRef) {
	list, _ := recorded.([]any)
	for _, item := range list {
		name, isName := item.(string)
		if !isName {
			t.Fatalf("no tool is %v", item)
		}
		refs = append(refs, &toolv1.ToolRef{Name: name})
	}
	return refs
}

// twice is a kind of tool of which a case offers two under one name.
func twice(recorded string) tool.Kind {
	const schema = `{"type": "object", "properties": {"x": {"type": "integer", "description": "A parameter."}}, "required": ["x"], "additionalProperties": false}`
	return echo(kindOf(recorded), schema, false)
}

// kindOf returns a recorded name without the characters that are invalid in a tool's name.
func kindOf(recorded string) string {
	return strings.NewReplacer(" ", "_", "(", "", ")", "").Replace(recorded)
}

// toldOf returns the tools' definitions for the model, and which of the tools may run in parallel.
func toldOf(response *toolv1.ResolveToolsResponse) (infos []any, parallel map[string]any) {
	infos, parallel = []any{}, map[string]any{}
	for _, definition := range response.GetTools() {
		info := definition.GetInfo()
		infos = append(infos, map[string]any{
			"name":        info.GetName(),
			"description": info.GetDescription(),
			"parameters":  json.RawMessage(info.GetParametersJson()),
		})
		parallel[info.GetName()] = definition.GetParallel()
	}
	return infos, parallel
}
