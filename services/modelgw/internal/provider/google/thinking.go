package google

import (
	"strings"

	format "github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// off is the effort that switches reasoning off.
const off = "none"

// effortFirst is why tokens are not sent beside an effort.
const effortFirst = "since reasoning_effort takes precedence"

// thinking is what a configuration asks of a model's reasoning: the effort or the tokens that are sent, and the options
// that are not.
func (m *model) thinking(c *modelv1.GenerateConfig) (*format.Thinking, []provider.Unsent) {
	if !m.name.thinks() {
		return nil, nil
	}
	effort, tokens := c.GetReasoningEffort(), c.ReasoningTokens
	var unsent []provider.Unsent
	if m.name.thinksAlways() {
		const why = "whose reasoning cannot be switched off"
		if effort == off {
			effort, unsent = "", append(unsent, provider.Unsent{Option: "reasoning_effort", Why: why})
			if tokens != nil {
				tokens, unsent = nil, append(unsent, provider.Unsent{Option: "reasoning_tokens", Why: effortFirst})
			}
		}
		if tokens != nil && *tokens == 0 {
			tokens, unsent = nil, append(unsent, provider.Unsent{Option: "reasoning_tokens", Why: why})
		}
	}
	none := tokens != nil && *tokens == 0
	if effort != "" && tokens != nil {
		if effort == off || m.name.takesLevel() && !none {
			tokens, unsent = nil, append(unsent, provider.Unsent{Option: "reasoning_tokens", Why: effortFirst})
		} else {
			effort, unsent = "", append(unsent, provider.Unsent{Option: "reasoning_effort", Why: "since reasoning_tokens takes precedence"})
		}
	}
	t := &format.Thinking{Include: true}
	switch {
	case effort == off || none:
		t = &format.Thinking{Budget: new(int64(0))}
	case tokens != nil:
		t.Budget = tokens
	case effort != "" && m.name.takesLevel():
		t.Level = m.name.level(effort)
	case effort != "":
		t.Budget = new(m.name.budget(effort))
	}
	return t, unsent
}

// Changed implements provider.OptionChanger. Models without levels take a number of tokens for each effort.
func (m *model) Changed(c *modelv1.GenerateConfig) []*modelv1.ChangedOption {
	effort := c.GetReasoningEffort()
	if effort == off || !m.name.takesLevel() {
		return nil
	}
	return provider.ChangeEffort(c, strings.ToLower(m.name.level(effort)))
}

// Overruled implements provider.OptionDropper.
func (m *model) Overruled(c *modelv1.GenerateConfig) []provider.Unsent {
	_, unsent := m.thinking(c)
	if c.Seed != nil { // The API takes one, as generationConfig.seed.
		unsent = append(unsent, provider.Unsent{Option: "seed", Why: "since inspect_ai does not send it"})
	}
	return unsent
}
