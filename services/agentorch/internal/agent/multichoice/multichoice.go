// Package multichoice is the solver multiple_choice: it lists a sample's choices under letters, asks the model for one
// of them, and notes which it named.
package multichoice

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/choice"
)

// Definition describes the solver.
func Definition() agent.Definition {
	return agent.Definition{
		Name:        "multiple_choice",
		Description: "Lists the choices under letters, asks the model for one of them, and notes which it named.",
		Parameters: `{"type": "object", "properties": {
			"template": {"type": "string", "description": "The prompt, with {question}, {choices} and perhaps {letters}."},
			"cot": {"type": "boolean", "default": false, "description": "Ask the model to think before it answers."},
			"multiple_correct": {"type": "boolean", "default": false, "description": "Several choices may be right."},
			"max_tokens": {"type": "integer", "minimum": 1, "description": "Bound of the answer's tokens."}
		}, "additionalProperties": false}`,
		Resolve: resolve,
		New:     func(step *agentv1.AgentRef) (agent.Machine, error) { return newMachine(step) },
	}
}

type params struct {
	Template  string `json:"template"`
	Reasoning bool   `json:"cot"`
	Multiple  bool   `json:"multiple_correct"`
	MaxTokens *int64 `json:"max_tokens,omitempty"`
}

func resolve(step *agentv1.AgentRef) error {
	var p params
	if err := agent.Params(step, &p); err != nil {
		return err
	}
	if p.Template == "" {
		p.Template = choice.DefaultTemplate(p.Reasoning, p.Multiple)
	}
	if err := choice.CheckTemplate(p.Template); err != nil {
		return rpcerr.InvalidField("params_json/template", "%v", err)
	}
	return agent.SetParams(step, p)
}

type machine struct {
	agent.NoTools
	agent.Loop
	params params
	put    bool // the question is in the conversation
}

func newMachine(step *agentv1.AgentRef) (*machine, error) {
	m := &machine{}
	return m, agent.Params(step, &m.params)
}

// Apply implements [agent.Machine].
func (m *machine) Apply(e *agentv1.Event) {
	m.Loop.Apply(e)
	m.put = m.put || e.GetHistoryChanged().GetReason() == reason
}

// reason of the change that puts the question.
const reason = "multiple_choice"

// Demand implements [agent.Demanding].
func (m *machine) Demand(spec *agentv1.RunSpec) error {
	if len(spec.GetChoices()) == 0 {
		return rpcerr.InvalidRequest("multiple_choice needs choices; give the sample some, or map the dataset's")
	}
	_, err := m.prompt(spec, "") // Earlier steps may change the question.
	return err
}

// Warn implements [agent.Cautious]: a misspelled placeholder stays in the text.
func (m *machine) Warn(*agentv1.RunSpec) string {
	return choice.TemplateWarning("the template of multiple_choice", m.params.Template)
}

func (m *machine) prompt(spec *agentv1.RunSpec, question string) (string, error) {
	text, err := choice.New(spec.GetChoices()).Prompt(m.params.Template, question)
	return text, rpcerr.In("params_json/template", err)
}

func (m *machine) ask() agent.Generate {
	if m.params.MaxTokens == nil {
		return agent.Generate{}
	}
	return agent.Generate{Config: &modelv1.GenerateConfig{MaxTokens: m.params.MaxTokens}}
}

// Asks implements [agent.Asking].
func (m *machine) Asks() []agent.Generate { return []agent.Generate{m.ask()} }

// Next implements [agent.Machine].
func (m *machine) Next(run agent.View) (agent.Action, error) {
	if !m.put {
		if err := m.Demand(run.Spec()); err != nil {
			return agent.Action{}, err
		}
	}
	choices := choice.New(run.Spec().GetChoices())
	action, over, err := m.Loop.Next(run, m.ask(), agent.UntilDone)
	if err != nil {
		return agent.Action{}, err
	}
	if !m.put {
		question, err := m.question(run)
		action.Events = append(action.Events, question)
		return action, err
	}
	if over {
		selected, err := m.selected(run, choices)
		action.Events, action.Then = append(action.Events, selected), agent.Done{}
		return action, err
	}
	return action, nil
}

// question rewrites the last user message.
func (m *machine) question(run agent.View) (*agentv1.Event, error) {
	message := chat.LastUser(run.Messages())
	if message == nil {
		return nil, errors.New("multiple_choice needs a user message that asks")
	}
	text, err := m.prompt(run.Spec(), chat.Text(message))
	if err != nil {
		return nil, err
	}
	changed := proto.CloneOf(message)
	chat.SetText(changed, text)
	return agent.Edit(reason, []*modelv1.ChatMessage{changed}, nil), nil
}

// selected records the options that the model named.
func (m *machine) selected(run agent.View, choices choice.Choices) (*agentv1.Event, error) {
	positions := choice.Parse(chat.Completion(run.Answer()), len(choices), m.params.Multiple)
	return agent.Store(agent.SelectionKey, agent.Selection{Selected: positions})
}
