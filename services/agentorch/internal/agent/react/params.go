package react

import (
	"encoding/json"
	"errors"
	"slices"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/compaction"
)

// params are the parameters. The run's pinned parameters have the same form, with every default written out.
type params struct {
	Prompt        promptParam     `json:"prompt"`
	Model         string          `json:"model,omitempty"`
	Attempts      attemptsParam   `json:"attempts"`
	Submit        submitParam     `json:"submit"`
	OnContinue    *continueParam  `json:"on_continue,omitempty"`
	RetryRefusals int             `json:"retry_refusals"`
	Truncation    truncationParam `json:"truncation"`

	Compaction *compaction.Params `json:"compaction,omitempty"`
}

// text is an optional text. Null means that there is none.
type text struct {
	Given bool
	Text  *string
}

func (t *text) UnmarshalJSON(b []byte) error {
	t.Given = true
	return json.Unmarshal(b, &t.Text)
}

func (t text) MarshalJSON() ([]byte, error) { return json.Marshal(t.Text) }

// or sets the default of an absent text.
func (t *text) or(standard string) {
	if !t.Given {
		*t = text{Given: true, Text: &standard}
	}
}

// promptParam is the system message: left out, null, the instructions, or the parts.
type promptParam struct {
	// None is set if there is no system message.
	None         bool `json:"-"`
	Instructions text `json:"instructions"`
	Handoff      text `json:"handoff_prompt"`
	Assistant    text `json:"assistant_prompt"`
	Submit       text `json:"submit_prompt"`
}

func (p *promptParam) UnmarshalJSON(b []byte) error {
	type parts promptParam
	switch b[0] {
	case 'n':
		p.None = true
		return nil
	case '"':
		return json.Unmarshal(b, &p.Instructions)
	}
	return json.Unmarshal(b, (*parts)(p))
}

func (p promptParam) MarshalJSON() ([]byte, error) {
	type parts promptParam
	if p.None {
		return []byte("null"), nil
	}
	return json.Marshal(parts(p))
}

// attemptsParam is a number, or an object.
type attemptsParam struct {
	Attempts  int                `json:"attempts"`
	Incorrect *string            `json:"incorrect_message,omitempty"`
	Values    map[string]float64 `json:"score_value,omitempty"`
}

func (a *attemptsParam) UnmarshalJSON(b []byte) error {
	type object attemptsParam
	if b[0] != '{' {
		return json.Unmarshal(b, &a.Attempts)
	}
	return json.Unmarshal(b, (*object)(a))
}

// submitParam is true or null for the default tool, false if there is none, or an object.
type submitParam struct {
	// Off is set if there is no submit tool.
	Off         bool    `json:"-"`
	Name        string  `json:"name,omitempty"`
	Description string  `json:"description,omitempty"`
	Tool        string  `json:"tool,omitempty"`
	AnswerOnly  bool    `json:"answer_only"`
	Delimiter   *string `json:"answer_delimiter,omitempty"`
	Keep        bool    `json:"keep_in_messages"`
}

func (s *submitParam) UnmarshalJSON(b []byte) error {
	type object submitParam
	switch b[0] {
	case 't', 'n':
		return nil
	case 'f':
		s.Off = true
		return nil
	}
	return json.Unmarshal(b, (*object)(s))
}

func (s submitParam) MarshalJSON() ([]byte, error) {
	type object submitParam
	if s.Off {
		return []byte("false"), nil
	}
	return json.Marshal(object(s))
}

// continueParam is a text, or the name of a worker.
type continueParam struct {
	Text   string `json:"-"`
	Worker string `json:"worker"`
}

func (c *continueParam) UnmarshalJSON(b []byte) error {
	type object continueParam
	if b[0] == '"' {
		return json.Unmarshal(b, &c.Text)
	}
	return json.Unmarshal(b, (*object)(c))
}

func (c continueParam) MarshalJSON() ([]byte, error) {
	type object continueParam
	if c.Worker == "" {
		return json.Marshal(c.Text)
	}
	return json.Marshal(object(c))
}

// worker is the name of the worker that decides how to continue; empty if there is none.
func (c *continueParam) worker() string {
	if c == nil {
		return ""
	}
	return c.Worker
}

// truncationParam is a word, or a list of filters.
type truncationParam []string

const (
	truncateAuto     = "auto"
	truncateDisabled = "disabled"
)

func (t *truncationParam) UnmarshalJSON(b []byte) error {
	if b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(t))
	}
	*t = make([]string, 1)
	return json.Unmarshal(b, &(*t)[0])
}

func (t truncationParam) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// resolve writes the defaults out and adds the submit tool.
func resolve(step *agentv1.AgentRef) error {
	var p params
	if err := agent.Params(step, &p); err != nil {
		return err
	}
	p.Prompt.or()
	if p.Attempts.Attempts == 0 {
		p.Attempts.Attempts = 1
	}
	if p.Attempts.Incorrect == nil {
		p.Attempts.Incorrect = new(incorrectMessage)
	}
	if len(p.Truncation) == 0 {
		p.Truncation = truncationParam{truncateDisabled}
	}
	if p.Compaction != nil {
		if err := p.Compaction.Resolve("params_json/compaction"); err != nil {
			return err
		}
	}
	if p.Submit.Off {
		if p.OnContinue != nil && p.OnContinue.Worker == "" {
			return rpcerr.InvalidField("params_json/on_continue", "an agent without submit ends with an answer without calls, so there is nothing to continue; leave it out")
		}
		return agent.SetParams(step, p)
	}
	if p.OnContinue == nil {
		p.OnContinue = &continueParam{Text: continuePrompt}
	}
	if p.Submit.Delimiter == nil {
		p.Submit.Delimiter = new("\n\n")
	}
	if err := p.Submit.addTool(step); err != nil {
		return err
	}
	return agent.SetParams(step, p)
}

func (p *promptParam) or() {
	if p.None {
		return
	}
	if !p.Instructions.Given {
		p.Instructions = text{Given: true}
	}
	p.Handoff.or(handoffPrompt)
	p.Assistant.or(assistantPrompt)
	p.Submit.or(submitPrompt)
}

// addTool sets the name of the submit tool and adds it to the step's tools, unless an earlier resolution added it.
func (s *submitParam) addTool(step *agentv1.AgentRef) error {
	ref := &toolv1.ToolRef{Name: s.Tool, Rename: s.Name, Description: s.Description}
	if s.Tool == "" {
		if s.Name == "" {
			s.Name = defaultSubmit
		}
		if s.Description == "" {
			s.Description = submitDescription
		}
		ref = &toolv1.ToolRef{Name: s.Name, Definition: s.definition()}
	}
	if s.Name == "" {
		s.Name = s.Tool
	}
	visible := func(r *toolv1.ToolRef) string {
		if r.GetRename() != "" {
			return r.GetRename()
		}
		return r.GetName()
	}
	switch at := slices.IndexFunc(step.GetTools(), func(r *toolv1.ToolRef) bool { return visible(r) == s.Name }); {
	case at < 0:
		step.Tools = append(step.Tools, ref)
	case s.Tool == "" && step.GetTools()[at].GetDefinition() == nil:
		return rpcerr.InvalidField("params_json/submit/name", "the step has a tool %q already; give the submit tool another name", s.Name)
	}
	return nil
}

// definition is the default submit tool: its argument is the answer, which is never truncated.
func (s *submitParam) definition() *toolv1.ToolDefinition {
	parameters, err := json.Marshal(map[string]any{
		"type": "object",
		"properties": map[string]any{
			"answer": map[string]any{"type": "string", "description": answerDescription},
		},
		"required":             []string{"answer"},
		"additionalProperties": false,
	})
	if err != nil {
		panic(errors.Join(errors.New("react: a constant has no JSON form"), err))
	}
	return &toolv1.ToolDefinition{
		Info:           &toolv1.ToolInfo{Name: s.Name, Description: s.Description, ParametersJson: string(parameters)},
		MaxOutputBytes: new(int64(0)),
		CallerRuns:     true,
	}
}

// windows returns the context windows that a step must know.
func windows(step *agentv1.AgentRef) ([]agent.Window, error) {
	var p params
	if err := agent.Params(step, &p); err != nil || p.Compaction == nil {
		return nil, err
	}
	return p.Compaction.Windows(p.Model), nil
}
