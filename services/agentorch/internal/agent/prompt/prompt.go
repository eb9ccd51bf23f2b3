// Package prompt holds the solvers that change the conversation without asking a model: system_message, user_message,
// assistant_message and prompt_template. Their texts are templates over the sample's metadata, the run's store and
// parameters of their own.
package prompt

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/template"
)

// Definitions describes the solvers.
func Definitions() []agent.Definition {
	return []agent.Definition{
		define("system_message", "Adds a system message after those that the conversation begins with.", func(run agent.View, text string) (*agentv1.Event, error) {
			messages := run.Messages()
			after := slices.IndexFunc(messages, func(m *modelv1.ChatMessage) bool { return m.GetRole() != modelv1.Role_ROLE_SYSTEM })
			if after < 0 {
				after = len(messages)
			}
			return agent.Insert(after, agent.Says(modelv1.Role_ROLE_SYSTEM, text)), nil
		}),
		define("user_message", "Appends a user message.", func(_ agent.View, text string) (*agentv1.Event, error) {
			return agent.Add(agent.Says(modelv1.Role_ROLE_USER, text)), nil
		}),
		define("assistant_message", "Appends an assistant message.", func(_ agent.View, text string) (*agentv1.Event, error) {
			return agent.Add(agent.Says(modelv1.Role_ROLE_ASSISTANT, text)), nil
		}),
		define("prompt_template", "Rewrites the last user message; {prompt} is what it said.", func(run agent.View, text string) (*agentv1.Event, error) {
			message := chat.LastUser(run.Messages())
			if message == nil {
				return nil, errors.New("prompt_template needs a user message in the conversation")
			}
			changed := proto.CloneOf(message)
			chat.SetText(changed, text)
			return agent.Edit("prompt_template", []*modelv1.ChatMessage{changed}, nil), nil
		}),
	}
}

type params struct {
	Template string          `json:"template"`
	Params   json.RawMessage `json:"params,omitempty"`
}

func define(name, description string, change func(agent.View, string) (*agentv1.Event, error)) agent.Definition {
	return agent.Definition{
		Name:        name,
		Description: description,
		Parameters: `{"type": "object", "properties": {
			"template": {"type": "string", "description": "The text. {name} is a member of params, of the store or of the metadata; an unknown one stays as it is."},
			"params": {"type": "object", "description": "Values for the template."}
		}, "required": ["template"], "additionalProperties": false}`,
		Resolve: func(step *agentv1.AgentRef) error {
			if step.GetParamsJson() == "" {
				return rpcerr.InvalidField("params_json/template", "%s needs the parameter template", name)
			}
			return agent.Params(step, &params{})
		},
		New: func(step *agentv1.AgentRef) (agent.Machine, error) {
			m := &machine{step: step, change: change}
			return m, agent.Params(step, &m.params)
		},
	}
}

type machine struct {
	agent.NoTools
	step   *agentv1.AgentRef
	params params
	change func(agent.View, string) (*agentv1.Event, error)
}

// Apply implements [agent.Machine]: the one action is the last.
func (*machine) Apply(*agentv1.Event) {}

// Next implements [agent.Machine].
func (m *machine) Next(run agent.View) (agent.Action, error) {
	text, err := m.fill(run.Spec(), run.Messages(), run.Stored)
	if err != nil {
		return agent.Action{}, err
	}
	event, err := m.change(run, text)
	if err != nil {
		return agent.Action{}, err
	}
	return agent.Action{Events: []*agentv1.Event{event}, Then: agent.Done{}}, nil
}

// Asks implements [agent.Asking]: it calls no model.
func (*machine) Asks() []agent.Generate { return nil }

// Demand implements [agent.Demanding]: the sample's own data may be too much for the template.
func (m *machine) Demand(spec *agentv1.RunSpec) error {
	var prompt []*modelv1.ChatMessage // is the input's until a step changes it
	if proto.Equal(spec.GetSteps()[0], m.step) {
		prompt = spec.GetInput()
	}
	_, err := m.fill(spec, prompt, template.Map(nil))
	return err
}

// Warn implements [agent.Cautious]: a misspelled placeholder stays in the text.
func (m *machine) Warn(spec *agentv1.RunSpec) string {
	stored := func(key string) (string, bool) {
		value, ok := spec.GetStore()[key]
		return value, ok
	}
	own, sample := template.Names(string(m.params.Params)), template.Names(spec.GetMetadataJson())
	known := slices.Concat(own, slices.Collect(maps.Keys(spec.GetStore())), sample)
	slices.Sort(known)
	known = append([]string{promptName}, slices.Compact(known)...)
	return template.Warning("the template of "+m.step.GetName(), m.params.Template, m.values(spec, nil, stored), known)
}

// promptName is the placeholder for what the last user message says.
const promptName = "prompt"

// values are what a template may name: the last user message, the parameters, the store, each entry as JSON, and the
// metadata.
func (m *machine) values(spec *agentv1.RunSpec, messages []*modelv1.ChatMessage, stored template.Values) template.Values {
	store := func(name string) (string, bool) {
		value, ok := stored(name)
		return template.Text(value), ok
	}
	metadata := template.Object(spec.GetMetadataJson())
	prompt := template.Map(map[string]string{promptName: chat.Text(chat.LastUser(messages))})
	own := template.Object(string(m.params.Params))
	return template.First(prompt, own, store, metadata, template.Under("metadata", metadata))
}

// fill fills the template with the data of a run: its conversation and its store.
func (m *machine) fill(spec *agentv1.RunSpec, messages []*modelv1.ChatMessage, stored template.Values) (string, error) {
	text, err := template.NewRoom().Prompt(m.params.Template, m.values(spec, messages, stored))
	return text, rpcerr.In("params_json/template", err)
}
