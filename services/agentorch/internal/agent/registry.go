package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/jsonschema"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// Registry holds agents by name. It is immutable and safe for concurrent use.
type Registry struct {
	definitions map[string]Definition
	schemas     map[string]*jsonschema.Schema
}

// NewRegistry returns a registry of the given agents. It panics if two have one name or a schema is invalid, which are
// programming errors.
func NewRegistry(definitions ...Definition) *Registry {
	r := &Registry{definitions: map[string]Definition{}, schemas: map[string]*jsonschema.Schema{}}
	for _, d := range definitions {
		schema, err := jsonschema.Compile(json.RawMessage(d.Parameters))
		if err != nil {
			panic(fmt.Sprintf("agent %s: %v", d.Name, err))
		}
		if _, taken := r.definitions[d.Name]; taken {
			panic("agent: two are named " + d.Name)
		}
		r.definitions[d.Name], r.schemas[d.Name] = d, schema
	}
	return r
}

// Definitions returns all agents, sorted by name.
func (r *Registry) Definitions() []Definition {
	return slices.SortedFunc(maps.Values(r.definitions), func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
}

// Resolve returns a copy of a step as a run pins it: parameters checked, defaults written out, the agent's own tools
// added. It fails with AGENT_NOT_FOUND, or with INVALID_REQUEST that names the parameter.
func (r *Registry) Resolve(step *agentv1.AgentRef) (*agentv1.AgentRef, error) {
	d, ok := r.definitions[step.GetName()]
	if !ok {
		return nil, rpcerr.AgentNotFound(step.GetName(), slices.Sorted(maps.Keys(r.definitions)))
	}
	if len(step.GetAgents()) > 0 {
		return nil, rpcerr.NotBuiltField("agents", "calling and handing over to other agents")
	}
	if step.GetParamsJson() != "" {
		violations, err := r.schemas[d.Name].Check(json.RawMessage(step.GetParamsJson()))
		if err != nil {
			return nil, rpcerr.InvalidField("params_json", "want a JSON object: %v", err)
		}
		if len(violations) > 0 {
			return nil, r.violated(d.Name, violations)
		}
	}
	resolved := proto.CloneOf(step)
	if err := d.Resolve(resolved); err != nil {
		return nil, err
	}
	return resolved, nil
}

// Workers returns the functions of a step that workers must serve. The step need not be resolved. For an unreadable
// step it returns nil.
func (r *Registry) Workers(step *agentv1.AgentRef) []*agentv1.WorkerRef {
	d := r.definitions[step.GetName()]
	if d.Workers == nil {
		return nil
	}
	wanted, err := d.Workers(step)
	if err != nil {
		return nil // Resolve returns the error
	}
	return wanted
}

// Windows returns the context windows that a resolved step must know.
func (r *Registry) Windows(step *agentv1.AgentRef) ([]Window, error) {
	d := r.definitions[step.GetName()]
	if d.Windows == nil {
		return nil, nil
	}
	return d.Windows(step)
}

// violated is an error that names every parameter that breaks the schema, and the valid parameters.
func (r *Registry) violated(name string, violations []jsonschema.Violation) error {
	members := r.schemas[name].Members()
	known, question := slices.Sorted(maps.Keys(members)), ""
	problems := make([]string, len(violations))
	for i, v := range violations {
		problems[i] = v.String()
		if text := members[strings.TrimPrefix(v.At, "/")]; text != "" && v.Keyword == "type" {
			problems[i] += " (" + strings.TrimSuffix(text, ".") + ")"
		}
		if v.At == "" && len(v.Unknown) > 0 {
			question = suggest.Question(v.Unknown[0], known)
		}
	}
	if len(known) == 0 {
		known = []string{"none"}
	}
	err := rpcerr.InvalidRequest("parameters of %s: %s; %sits parameters are %s", name, strings.Join(problems, "; "), question, strings.Join(known, ", "))
	for _, v := range violations {
		if len(v.Unknown) == 0 {
			err.Fields = append(err.Fields, rpcerr.Field{Path: "params_json" + v.At, Description: v.Message})
		}
		for _, member := range v.Unknown {
			err.Fields = append(err.Fields, rpcerr.Field{Path: "params_json" + v.At + "/" + member, Description: "is no parameter"})
		}
	}
	return err
}

// New returns the machine of a resolved step. It fails if this version does not know the agent or cannot read its
// parameters.
func (r *Registry) New(step *agentv1.AgentRef) (Machine, error) {
	d, ok := r.definitions[step.GetName()]
	if !ok {
		return nil, fmt.Errorf("this version has no agent %q", step.GetName())
	}
	return d.New(step)
}

// Params reads a step's parameters into a struct that holds the defaults.
func Params(step *agentv1.AgentRef, into any) error {
	if step.GetParamsJson() == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(step.GetParamsJson()), into); err != nil {
		return rpcerr.InvalidField("params_json", "parameters of %s: %v", step.GetName(), err)
	}
	return nil
}

// SetParams writes a step's parameters.
func SetParams(step *agentv1.AgentRef, params any) error {
	b, err := json.Marshal(params)
	if err != nil {
		return rpcerr.InvalidField("params_json", "parameters of %s: %v", step.GetName(), err)
	}
	step.ParamsJson = string(b)
	return nil
}

// DisplayName is the name of a step for people and transcripts.
func DisplayName(step *agentv1.AgentRef) string {
	if step.GetDisplayName() != "" {
		return step.GetDisplayName()
	}
	return step.GetName()
}

// NoTools is embedded by machines whose agent has no tools of its own.
type NoTools struct{}

// ToolBound implements [Machine]: it leaves the bound to the tool and the run.
func (NoTools) ToolBound(string) (int64, bool) { return 0, false }

// Call implements [Machine]: it fails the run, since such a tool cannot have been offered.
func (NoTools) Call(_ View, call *toolv1.ToolCall) *toolv1.ToolResult {
	return &toolv1.ToolResult{CallId: call.GetId(), Function: call.GetFunction(), Failure: &toolv1.ToolFailure{
		Reason: rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_INTERNAL), Message: "the agent has no tool " + call.GetFunction(),
	}}
}
