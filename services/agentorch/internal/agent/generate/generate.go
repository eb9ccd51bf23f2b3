// Package generate is the solver that calls the model, and runs the requested tools until it requests none.
package generate

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

// Definition describes the solver.
func Definition() agent.Definition {
	return agent.Definition{
		Name:        "generate",
		Description: "Asks the model, and lets it call tools until it calls none.",
		Parameters: `{"type": "object", "properties": {
			"tool_calls": {"enum": ["loop", "single", "none"], "default": "loop",
				"description": "What becomes of tool calls: run them until an answer has none, run them once, or leave them."},
			"config": {"type": "object", "description": "Options of generation, over those of the run."}
		}, "additionalProperties": false}`,
		Resolve: resolve,
		New:     func(step *agentv1.AgentRef) (agent.Machine, error) { return newMachine(step) },
	}
}

type params struct {
	ToolCalls agent.ToolUse   `json:"tool_calls"`
	Config    json.RawMessage `json:"config,omitempty"`
}

func resolve(step *agentv1.AgentRef) error {
	p := params{ToolCalls: agent.UntilDone}
	if err := agent.Params(step, &p); err != nil {
		return err
	}
	if _, err := p.config(); err != nil {
		return err
	}
	return agent.SetParams(step, p)
}

func (p params) config() (*modelv1.GenerateConfig, error) {
	if p.Config == nil {
		return nil, nil
	}
	config, err := chat.ParseConfig(p.Config)
	if err != nil {
		return nil, rpcerr.InvalidField("params_json/config", "%v", err)
	}
	return config, nil
}

type machine struct {
	agent.NoTools
	agent.Loop
	ask agent.Generate
	use agent.ToolUse
}

func newMachine(step *agentv1.AgentRef) (*machine, error) {
	var p params
	if err := agent.Params(step, &p); err != nil {
		return nil, err
	}
	config, err := p.config()
	return &machine{ask: agent.Generate{Config: config}, use: p.ToolCalls}, err
}

// Asks implements [agent.Asking].
func (m *machine) Asks() []agent.Generate { return []agent.Generate{m.ask} }

// Next implements [agent.Machine].
func (m *machine) Next(run agent.View) (agent.Action, error) {
	action, over, err := m.Loop.Next(run, m.ask, m.use)
	if over {
		action.Then = agent.Done{}
	}
	return action, err
}
